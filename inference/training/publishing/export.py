"""Exports a checkpoint as a Hugging Face model folder, replaced file by file."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import GenerationConfig, LlamaForCausalLM

from inference.training.corpus.corpus import Corpus, read_manifest
from inference.training.corpus.vocabulary import END_OF_TEXT, PADDING, Vocabulary, load_vocabulary
from inference.training.errors import CheckpointError
from inference.training.machine import multiplies_bf16
from inference.training.options import TrainingOptions
from inference.training.publishing.card import CardFacts, write_card
from inference.training.run.checkpoints import RunFolder, read_progress
from inference.training.run.evaluation import HeldOutLosses, evaluate
from inference.training.run.modeling import build_model


def export_model(run: RunFolder, corpus: Path, output: Path, *, samples: int = 384) -> HeldOutLosses:
    """Write the newest checkpoint of a run as a model folder with its card, and measure it.

    Raises:
        CheckpointError: the run has no checkpoint yet.
    """
    checkpoint = run.latest()
    if checkpoint is None:
        raise CheckpointError(f"no checkpoint in {run.root}")
    options = run.read_options()
    vocabulary = load_vocabulary(run.tokenizer)
    model = _load(checkpoint, options, run)
    losses = _measure(model, Corpus(corpus, "held_out"), vocabulary, samples)
    facts = CardFacts(
        name=output.name,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        vocabulary=vocabulary.size,
        options=options,
        recipes=tuple(run.read_recipes()),
        manifest=read_manifest(run.root),
        progress=read_progress(checkpoint),
        machine=run.read_machine(),
        losses=losses,
    )
    # Beside the output, so that every move into place is an atomic rename.
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as name:
        write_model(model, run.tokenizer, Path(name), options)
        write_card(facts, Path(name) / "README.md")
        replace_files(Path(name), output)
    return losses


def _measure(model: LlamaForCausalLM, held_out: Corpus, vocabulary: Vocabulary, samples: int) -> HeldOutLosses:
    """The losses of a bf16 model, computed in the dtype that its device multiplies fast."""
    if multiplies_bf16(model.device):
        return evaluate(model, held_out, vocabulary, samples=samples)
    torch.nn.Module.to(model, torch.float32)
    losses = evaluate(model, held_out, vocabulary, samples=samples)
    torch.nn.Module.to(model, torch.bfloat16)  # lossless: the weights came from bf16
    return losses


def _load(checkpoint: Path, options: TrainingOptions, run: RunFolder) -> LlamaForCausalLM:
    """The checkpoint's weights, bf16, in a model with transformers' own attention."""
    model = build_model(options.shape, load_vocabulary(run.tokenizer))
    torch.nn.Module.to(model, torch.bfloat16)
    missing, unexpected = model.load_state_dict(load_file(checkpoint / "model.safetensors"), strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise CheckpointError(f"{checkpoint} does not fit: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    torch.nn.Module.eval(model)
    return model


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
        {
            "rope_theta": options.shape.rope_theta,
            "torch_dtype": "bfloat16",
            "midfill": {"fragments_suffice": False},
        },
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
