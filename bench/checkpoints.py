"""The shapes of models that benches run with random weights, and folders with such models.

The tokenizer is the tiny model's, filled up with unused tokens if the shape has a larger vocabulary. Weights are
scaled so that every token that is not printable ASCII is improbable: no completion ends before its last token.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from proof.sizes import MODELS, shape

from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from protocol.settings import TINY_MODEL

MAX_POSITIONS = 8192
SUPPRESSED = 0.01  # of the size of other rows of the embedding, which is the head too


SHAPES = {
    "tiny": shape(1, 64, 64, 1, 1, 64, 8192),
    "S": shape(8, 320, 864, 5, 1, 64, 8192),
    "M": shape(12, 512, 1408, 8, 2, 64, 8192),
    "SmolLM2": MODELS["135M"],
    "L": MODELS["0.5B"],
    "XL": MODELS["1.5B"],
}
MODEL_HELP = f"bundled, tiny, a folder, or any of {', '.join(SHAPES)}."


@contextmanager
def model_called(name: str) -> Iterator[str]:
    """The value for `--model`: for the name of a shape, a folder that lasts as long as the block."""
    if name not in SHAPES:
        yield name
        return
    with tempfile.TemporaryDirectory() as folder:
        yield str(write_checkpoint(name, Path(folder)))


def write_checkpoint(name: str, folder: Path) -> Path:
    """Write the checkpoint of the shape called `name`, the same one at every call; returns the folder."""
    architecture = SHAPES[name]
    folder.mkdir(parents=True, exist_ok=True)
    printable = write_tokenizer(folder / "tokenizer.json", architecture.vocabulary)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    model = random_model(architecture)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
            elif parameter_name.endswith("bias"):
                parameter.normal_(std=0.1)
        model.get_input_embeddings().weight[~printable] *= SUPPRESSED
    model.save_pretrained(folder)
    return folder


def write_tokenizer(path: Path, vocabulary: int) -> torch.Tensor:
    """Write the tiny model's tokenizer, filled up to `vocabulary`; for each token whether it is printable ASCII."""
    shutil.copy(BUNDLED_FOLDERS[TINY_MODEL] / "tokenizer.json", path)
    definition = json.loads(path.read_text(encoding="utf-8"))
    names = dict(definition["model"]["vocab"])
    added = {token["content"]: token["id"] for token in definition["added_tokens"]}
    first_unused = max(added.values()) + 1
    if vocabulary < first_unused:
        raise ValueError(f"the vocabulary of {vocabulary} tokens is smaller than the tokenizer's ({first_unused})")
    printable = torch.zeros(vocabulary, dtype=torch.bool)
    printable[[token_id for token, token_id in names.items() if token.isascii()]] = True  # byte-level: no white space
    for token_id in range(first_unused, vocabulary):
        definition["model"]["vocab"][f"<|unused_{token_id}|>"] = token_id
    path.write_text(json.dumps(definition, ensure_ascii=False), encoding="utf-8")
    return printable


def random_model(architecture: Architecture) -> transformers.Qwen2ForCausalLM:
    """transformers' own module of these dimensions, in bfloat16."""
    config = transformers.Qwen2Config(
        vocab_size=architecture.vocabulary,
        hidden_size=architecture.hidden,
        intermediate_size=architecture.intermediate,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.kv_heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
    )
    return transformers.Qwen2ForCausalLM(config).bfloat16()
