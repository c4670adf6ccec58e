"""Publishes a model that a user trained as a folder that midfill and transformers load, replaced file by file."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedModel

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.training.options import TrainingOptions
from midfill_lab.training.vocabulary import END_OF_TEXT, PADDING, Vocabulary

ADAPTER = "adapter"
_OF_TOKENIZERS = ("tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json", "merges.txt")


def write_model(model: LlamaForCausalLM, tokenizer: Path, folder: Path, options: TrainingOptions) -> None:
    """Write a model that was trained from scratch, in the format of the Hugging Face hub."""
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False, eos_token_id=model.config.eos_token_id, pad_token_id=model.config.pad_token_id
    )
    model.save_pretrained(folder)
    # Versions before transformers 5, and other engines, read these two names.
    # A model trained from scratch has seen too few fragments to work without token healing.
    add_to_json(
        folder / "config.json",
        {"rope_theta": options.shape.rope_theta, "torch_dtype": "bfloat16", "midfill": {"fragments_suffice": False}},
    )
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    # Written by hand for the same reason: older versions cannot read what transformers 5 writes.
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": PADDING,
        "model_max_length": options.shape.positions,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=2) + "\n")


def add_to_json(path: Path, entries: dict[str, Any]) -> None:
    """Set entries of the object in a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}, indent=2) + "\n")


def replace_files(source: Path, target: Path) -> None:
    """Move every file into `target`, the weights last: concurrent readers find complete files."""
    target.mkdir(exist_ok=True)
    for path in sorted(source.iterdir(), key=lambda path: path.suffix == ".safetensors"):
        path.chmod(0o644)  # safetensors makes its files private to their owner
        path.replace(target / path.name)


def publish(
    model: torch.nn.Module, vocabulary: Vocabulary, tokenizer: Path, options: TrainingOptions, output: Path, card: str
) -> None:
    """Write `model` with its tokenizer and card to `output`, replaced file by file; adapters are merged in.

    The adapters are also saved alone, in peft's format, to a folder `adapter` beside it. The weights keep the precision
    of the checkpoint, or are bf16; float32 if they were trained through a quantizer. The model must not be trained on.
    """
    if options.lora is not None:
        model.save_pretrained(output.parent / ADAPTER, save_embedding_layers=False)  # type: ignore[operator]
        model = model.merge_and_unload()  # type: ignore[operator]
    assert isinstance(model, PreTrainedModel)
    output.parent.mkdir(parents=True, exist_ok=True)
    # Beside the output, so that every move into place is an atomic rename.
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as name:
        folder = Path(name)
        if options.start is None:
            assert isinstance(model, LlamaForCausalLM)
            torch.nn.Module.to(model, torch.bfloat16)
            model.set_attn_implementation("sdpa")
            write_model(model, tokenizer, folder, options)
        else:
            # What was trained through a quantizer is quantized later, from what it rounded.
            dtype = torch.float32 if options.quantization else None
            _write_trained_on(model, tokenizer, find_checkpoint(options.start).folder, folder, dtype)
        # Not in the tokenizer: the format of a model with a shared vocabulary, and whether it needs healing.
        known = {"fim_format": vocabulary.format.name, "fragments_suffice": _fragments_suffice(options)}
        add_to_json(folder / "config.json", {"midfill": known})
        (folder / "README.md").write_text(card)
        replace_files(folder, output)


def _fragments_suffice(options: TrainingOptions) -> bool:
    """Whether the model needs no healing: only if the checkpoint that it was trained from says so.

    Fragments take long to learn: after 1.4M tokens SmolLM2-135M completed 98 % of words with healing and 42 without.
    """
    if options.start is None or options.examples.fragment_rate == 0:
        return False
    return bool(find_checkpoint(options.start).config.get("midfill", {}).get("fragments_suffice", False))


def _write_trained_on(model: PreTrainedModel, tokenizer: Path, start: Path, folder: Path, dtype: torch.dtype | None) -> None:
    config = json.loads((start / "config.json").read_text())
    dtype = dtype or getattr(torch, str(config.get("dtype") or config.get("torch_dtype") or "bfloat16"))
    torch.nn.Module.to(model, dtype)
    model.config.dtype = dtype
    model.save_pretrained(folder)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    for name in _OF_TOKENIZERS:
        if (start / name).is_file():
            shutil.copyfile(start / name, folder / name)
