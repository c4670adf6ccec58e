"""Writes models as folders in the format of the Hugging Face hub, replaced file by file."""

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, LlamaForCausalLM

from midfill_lab.training.corpus.vocabulary import END_OF_TEXT, PADDING
from midfill_lab.training.options import TrainingOptions


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
