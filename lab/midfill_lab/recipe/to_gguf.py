"""Writes a model folder of the Llama family as a GGUF file, quantized, with its tokenizer and its FIM markers."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint, find_checkpoint
from inference.checkpoints.gguf.tokenizer import pre_tokenizer
from midfill_lab.training.options import Quantization
from midfill_lab.training.rounding import kind_of
from protocol.errors import BadModel

ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}
PERMUTED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")
_DIGITS = {"type": "Digits", "individual_digits": True}


def write_gguf(
    model: str,
    path: Path,
    quantization: Quantization | None = None,
    *,
    licence: str = "",
    rounded: Mapping[str, NDArray[np.uint8]] | None = None,
) -> None:
    """Write the model named or in the folder `model` to `path`: matrices quantized, or bfloat16; the rest float32.

    rounded: bytes of tensors that are quantized already, in the type of `quantization`: [rows, bytes], by their names.

    Raises:
        BadModel: llama.cpp has no name for its kind, its tokenizer or one of its tensors.
    """
    checkpoint = find_checkpoint(model)
    shape = checkpoint.architecture
    if not isinstance(shape, Architecture) or shape.model_type not in ARCHITECTURES or shape.rope_type != "default":
        raise BadModel(f"{model}: only {' and '.join(ARCHITECTURES)} without RoPE scaling are converted")
    if shape.heads * shape.head_dim != shape.hidden:
        raise BadModel(f"{model}: {shape.heads} heads of {shape.head_dim} are not the {shape.hidden} of its state")
    architecture = ARCHITECTURES[shape.model_type]
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_name(checkpoint.folder.name)
    if licence:
        writer.add_license(licence)
    _add_shape(writer, shape, quantization)
    _add_tokenizer(writer, checkpoint, shape.vocabulary)
    for key, value in checkpoint.config.get("midfill", {}).items():  # midfill's notes, which llama.cpp ignores
        writer.add_key_value(f"midfill.{key}", value, gguf.GGUFValueType.get_type(value))
    names = gguf.get_tensor_name_map(architecture, shape.layers)
    for name, tensor in _tensors(checkpoint):
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if theirs is None:
            raise BadModel(f"{model}: llama.cpp has no name for the tensor {name}")
        kind = "bf16" if quantization is None else kind_of(name, tensor, quantization)
        if rounded and name in rounded:
            tensor = torch.from_numpy(rounded[name])
        _add_tensor(writer, theirs, _permuted(name, tensor, shape), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: gguf.GGUFWriter, shape: Architecture, quantization: Quantization | None) -> None:
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
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{(quantization.matrices if quantization else 'bf16').upper()}"])
    if quantization:
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Checkpoint, vocabulary: int) -> None:
    definition = json.loads((checkpoint.folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {token["content"]: token["id"] for token in definition["added_tokens"]}
    tokens = [f"<|unused_{token_id}|>" for token_id in range(vocabulary)]
    kinds = [gguf.TokenType.UNUSED] * vocabulary
    for token, token_id in definition["model"]["vocab"].items():
        tokens[token_id], kinds[token_id] = token, gguf.TokenType.NORMAL
    for token, token_id in added.items():
        tokens[token_id], kinds[token_id] = token, gguf.TokenType.CONTROL
    merges = definition["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_pre_tokenizer(definition, checkpoint.name))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_add_bos_token(False)
    tokenizer = checkpoint.tokenizer()
    (end,) = (added[name] for name in tokenizer.format.end[:1])
    writer.add_eos_token_id(end)
    # Engines that know no such names read these ids.
    writer.add_uint32("tokenizer.ggml.fim_pre_token_id", tokenizer.markers.prefix)
    writer.add_uint32("tokenizer.ggml.fim_suf_token_id", tokenizer.markers.suffix)
    for field, id_ in (("mid", tokenizer.markers.middle), ("sep", tokenizer.markers.file_separator)):
        if id_ is not None:
            writer.add_uint32(f"tokenizer.ggml.fim_{field}_token_id", id_)


def _pre_tokenizer(definition: dict[str, Any], name: str) -> str:
    """llama.cpp's name for how the tokenizer splits text."""
    step = definition.get("pre_tokenizer") or {}
    steps = step.get("pretokenizers", [step])
    patterns = tuple(one["pattern"].get("Regex") for one in steps if one["type"] == "Split")
    for known in ("qwen2", "smollm"):
        if patterns == pre_tokenizer(known, name).patterns:
            return known
    if [one["type"] for one in steps] == ["Digits", "ByteLevel"] and steps[0] == _DIGITS:
        return "smollm"
    raise BadModel(f"{name}: its tokenizer splits text neither as Qwen2's nor as SmolLM's does")


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


def _add_tensor(writer: gguf.GGUFWriter, name: str, tensor: torch.Tensor, kind: str | None) -> None:
    if tensor.dim() == 1 or kind is None:
        writer.add_tensor(name, tensor.float().numpy())
        return
    type_ = gguf.GGMLQuantizationType[kind.upper()]
    packed = tensor.numpy() if tensor.dtype == torch.uint8 else gguf.quantize(tensor.float().numpy(), type_)
    writer.add_tensor(name, packed, raw_dtype=type_)
