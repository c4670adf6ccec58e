"""The shapes of models that benches run with random weights, and these weights, in memory or as a folder.

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

from inference.backends.llama.weights import DecoderWeights, LayerWeights
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from protocol.settings import TINY_MODEL

MAX_POSITIONS = 8192
SUPPRESSED = 0.01  # of the size of other rows of the embedding, which is the head too


def _shape(
    layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, vocabulary: int = 8192, head_dim: int = 64
) -> Architecture:
    return Architecture(
        model_type="qwen2",
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        norm_epsilon=1e-6,
        max_positions=4096,
        tied_embeddings=True,
        qk_norm=False,
        rope_theta=10000.0,
        rope_type="default",
    )


SHAPES = {
    "tiny": _shape(1, 64, 64, 1, 1),
    "S": _shape(8, 320, 864, 5, 1),
    "M": _shape(12, 512, 1408, 8, 2),
    "SmolLM2": _shape(30, 576, 1536, 9, 3, 49152),
    "L": _shape(24, 896, 4864, 14, 2, 151936),  # of Qwen2.5-Coder-0.5B
    "XL": _shape(28, 1536, 8960, 12, 2, 151936, 128),  # of Qwen2.5-Coder-1.5B
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
    model = random_model(shape)
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


def random_model(shape: Architecture) -> transformers.Qwen2ForCausalLM:
    """transformers' own module of these dimensions, in bfloat16."""
    config = transformers.Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
    )
    return transformers.Qwen2ForCausalLM(config).bfloat16()
