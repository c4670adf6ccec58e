"""Converts a checkpoint of the Llama family that has midfill's own kind of tokenizer to GGUF, for llama.cpp.

    python bench/to_gguf.py MODEL FILE.gguf [--quantize PATH/TO/llama-quantize --type q8_0]

MODEL is "bundled" or a folder. Matrices are written in bfloat16, the rest in float32. The tokenizer must be a
byte-level BPE with the split pattern and the markers of Qwen2.5-Coder, which llama.cpp knows: then `/infill` works.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import gguf
import numpy as np
import torch
import typer
from safetensors import safe_open

from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint, find_checkpoint
from inference.training.corpus.vocabulary import SPLIT_PATTERN
from protocol.errors import BadModel

ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}
END_OF_TEXT = "<|endoftext|>"
PERMUTED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")


def convert(model: str, path: Path) -> None:
    """Write the model to a GGUF file; BadModel if this converter does not know its kind."""
    checkpoint = find_checkpoint(model)
    shape = checkpoint.architecture
    if not isinstance(shape, Architecture) or shape.model_type not in ARCHITECTURES or shape.rope_type != "default":
        raise BadModel(f"{model}: only {' and '.join(ARCHITECTURES)} without RoPE scaling can be converted")
    if shape.heads * shape.head_dim != shape.hidden:
        raise BadModel(f"{model}: {shape.heads} heads of {shape.head_dim} do not match the hidden size {shape.hidden}")
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[shape.model_type]])
    _add_shape(writer, shape)
    _add_tokenizer(writer, checkpoint, shape.vocabulary)
    for key, value in checkpoint.config.get("midfill", {}).items():  # our own notes, which llama.cpp ignores
        writer.add_key_value(f"midfill.{key}", value, gguf.GGUFValueType.get_type(value))
    names = gguf.get_tensor_name_map(ARCHITECTURES[shape.model_type], shape.layers)
    for name, tensor in _tensors(checkpoint):
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if theirs is None:
            raise BadModel(f"{model}: llama.cpp has no name for the tensor {name}")
        _add_tensor(writer, theirs, _permuted(name, tensor, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantize(program: Path, source: Path, target: Path, kind: str) -> None:
    """Let llama-quantize write `target` from `source`."""
    subprocess.run([program, source, target, kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _add_shape(writer: gguf.GGUFWriter, shape: Architecture) -> None:
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.max_positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Checkpoint, vocabulary: int) -> None:
    definition = json.loads((checkpoint.folder / "tokenizer.json").read_text(encoding="utf-8"))
    if SPLIT_PATTERN not in _split_patterns(definition):
        raise BadModel(f"{checkpoint.name}: its tokenizer splits text differently from Qwen2's")
    added = {token["content"]: token["id"] for token in definition["added_tokens"]}
    tokens = [f"<|unused_{token_id}|>" for token_id in range(vocabulary)]
    kinds = [gguf.TokenType.UNUSED] * vocabulary
    for token, token_id in definition["model"]["vocab"].items():
        tokens[token_id], kinds[token_id] = token, gguf.TokenType.NORMAL
    for token, token_id in added.items():
        tokens[token_id], kinds[token_id] = token, gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in definition["model"]["merges"]])
    writer.add_eos_token_id(added[END_OF_TEXT])
    writer.add_add_bos_token(False)


def _split_patterns(definition: dict[str, Any]) -> list[str]:
    steps = (definition.get("pre_tokenizer") or {}).get("pretokenizers", [])
    return [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]


def _tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    for file in checkpoint.weights():
        with safe_open(file.path, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 -- it is no dict
                yield name, tensors.get_tensor(name)


def _permuted(name: str, tensor: torch.Tensor, shape: Architecture) -> torch.Tensor:
    """llama.cpp turns neighbouring rows for the architecture "llama", where transformers turns halves of a head."""
    if shape.model_type != "llama" or not name.endswith(PERMUTED):
        return tensor
    heads = tensor.shape[0] // shape.head_dim
    return tensor.reshape(heads, 2, shape.head_dim // 2, -1).transpose(1, 2).reshape(tensor.shape)


def _add_tensor(writer: gguf.GGUFWriter, name: str, tensor: torch.Tensor) -> None:
    values: np.ndarray[Any, Any] = tensor.float().numpy()
    if tensor.dim() == 1:
        writer.add_tensor(name, values)
    else:
        kind = gguf.GGMLQuantizationType.BF16
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)


def main(
    model: Annotated[str, typer.Argument(help='"bundled" or a folder.')],
    file: Annotated[Path, typer.Argument(help="GGUF file to write.")],
    program: Annotated[Path | None, typer.Option("--quantize", help="llama-quantize.")] = None,
    kind: Annotated[str, typer.Option("--type", help="Quantized type that llama-quantize writes beside it.")] = "q8_0",
) -> None:
    """Convert a checkpoint."""
    convert(model, file)
    print(file)
    if program is not None:
        smaller = file.with_suffix(f".{kind}.gguf")
        quantize(program, file, smaller, kind)
        print(smaller)


if __name__ == "__main__":
    typer.run(main)
