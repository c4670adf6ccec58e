"""The shapes of models that benches run with random weights, and these weights, in memory or as a folder.

    python bench/checkpoints.py S FOLDER

The tokenizer is the tiny model's, filled up with unused tokens if the shape has a larger vocabulary. Weights are
scaled so that every token that is not printable ASCII is improbable: no completion ends before its last token.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import transformers
import typer

from inference.backends.llama.weights import DecoderWeights, LayerWeights
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from protocol.settings import TINY_MODEL

MAX_POSITIONS = 8192
SUPPRESSED = 0.01  # of the size of other rows of the embedding, which is the head too


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's dimensions; head_dim is 64 for all."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int

    @property
    def architecture(self) -> Architecture:
        return Architecture(
            model_type="qwen2",
            layers=self.layers,
            hidden=self.hidden,
            intermediate=self.intermediate,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=64,
            vocabulary=self.vocabulary,
            norm_epsilon=1e-6,
            max_positions=4096,
            tied_embeddings=True,
            qk_norm=False,
            rope_theta=10000.0,
            rope_type="default",
        )


SHAPES = {
    "tiny": Shape(1, 64, 64, 1, 1, 8192),
    "S": Shape(8, 320, 864, 5, 1, 8192),
    "M": Shape(12, 512, 1408, 8, 2, 8192),
    "SmolLM2": Shape(30, 576, 1536, 9, 3, 49152),
    "L": Shape(24, 896, 4864, 14, 2, 151936),  # of Qwen2.5-Coder-0.5B
}

MODEL_HELP = f"bundled, tiny, a folder, or any of {', '.join(SHAPES)}."


def random_weights(shape: Architecture) -> DecoderWeights:
    """bfloat16 weights of about the magnitude of trained ones."""

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.empty(rows, columns, dtype=torch.bfloat16).normal_(std=columns**-0.5)

    def ones(count: int) -> torch.Tensor:
        return torch.ones(count, dtype=torch.bfloat16)

    attended, qkv = shape.heads * shape.head_dim, (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    embedding = matrix(shape.vocabulary, shape.hidden)
    layers = tuple(
        LayerWeights(
            attention_norm=ones(shape.hidden),
            qkv=matrix(qkv, shape.hidden),
            qkv_bias=ones(qkv),
            q_norm=None,
            k_norm=None,
            attention_out=matrix(shape.hidden, attended),
            attention_out_bias=None,
            mlp_norm=ones(shape.hidden),
            gate_up=matrix(2 * shape.intermediate, shape.hidden),
            gate_up_bias=None,
            down=matrix(shape.hidden, shape.intermediate),
            down_bias=None,
        )
        for _ in range(shape.layers)
    )
    return DecoderWeights(embedding, layers, ones(shape.hidden), embedding)


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
    shape = SHAPES[name]
    folder.mkdir(parents=True, exist_ok=True)
    printable = write_tokenizer(folder / "tokenizer.json", shape.vocabulary)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    model = transformers.Qwen2ForCausalLM(_config(shape)).bfloat16()
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


def _config(shape: Shape) -> transformers.Qwen2Config:
    return transformers.Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
    )


def main(
    shape: Annotated[str, typer.Argument(help=f"One of {', '.join(SHAPES)}.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write the checkpoint to.")],
) -> None:
    """Write a checkpoint."""
    print(write_checkpoint(shape, folder))


if __name__ == "__main__":
    typer.run(main)
