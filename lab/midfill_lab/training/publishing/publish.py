"""Publishes a model that a user trained as a folder that midfill and transformers load."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.options import TrainingOptions
from midfill_lab.training.publishing.model_folder import add_to_json, replace_files, write_model

ADAPTER = "adapter"
_OF_TOKENIZERS = ("tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json", "merges.txt")


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


def _write_trained_on(
    model: PreTrainedModel, tokenizer: Path, start: Path, folder: Path, dtype: torch.dtype | None
) -> None:
    config = json.loads((start / "config.json").read_text())
    dtype = dtype or getattr(torch, str(config.get("dtype") or config.get("torch_dtype") or "bfloat16"))
    torch.nn.Module.to(model, dtype)
    model.config.dtype = dtype
    model.save_pretrained(folder)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    for name in _OF_TOKENIZERS:
        if (start / name).is_file():
            shutil.copyfile(start / name, folder / name)
