"""Opens GGUF files, whole or in parts, as checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf

from inference.checkpoints.architecture import Architecture, ModelShape
from inference.checkpoints.generic_shape import read_shape
from inference.checkpoints.gguf.config import gguf_config
from inference.checkpoints.gguf.hybrids import HYBRIDS, hybrid_config, layers_of
from inference.checkpoints.gguf.metadata import GgufHeader, read_gguf_header
from inference.checkpoints.gguf.tokenizer import gguf_tokenizer
from inference.checkpoints.hub import is_first_part
from inference.checkpoints.tensors import check_tensors
from inference.checkpoints.weights import StoredTensor, WeightsFile
from inference.text.fim import AUTO
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadModel, bad_model

GGUF_SUFFIX = ".gguf"

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_UNREAD = re.compile(r"rope_freqs\.weight|blk\.\d+\.attn_rot_embd(\.weight)?")  # no weights: the config's, or computed
_LAYER = re.compile(r"blk\.(\d+)\.")
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.([\w.]+?)(\.(?:weight|bias))?")
_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_FAMILY_NAMES = {
    "lfm2": {**_NAMES, "token_embd_norm.weight": "model.norm.weight"},  # as llama.cpp calls the last norm
    "starcoder2": {**_NAMES, "output_norm.bias": "model.norm.bias"},
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "shortconv.conv": "conv.conv",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.out_proj": "conv.out_proj",
    "post_attention_norm": "post_attention_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    "ssm_a": "linear_attn.A",
}


@dataclass(frozen=True, slots=True)
class GgufCheckpoint:
    """Implements `Checkpoint`."""

    name: str
    path: Path
    config: Mapping[str, Any]
    architecture: ModelShape
    headers: tuple[GgufHeader, ...]  # of all parts

    @property
    def folder(self) -> Path:
        raise BadModel(f"{self.path} is a GGUF file: this needs a folder with config.json and safetensors files")

    def tokenizer(self, fim_format: str = AUTO) -> TextTokenizer:
        return gguf_tokenizer(self.headers[0], fim_format)

    def weights(self) -> tuple[WeightsFile, ...]:
        with bad_model(f"{self.path} cannot be read"):
            is_ours = isinstance(self.architecture, Architecture)
            files = tuple(_weights_file(header, is_ours=is_ours) for header in self.headers)
            if isinstance(self.architecture, Architecture):
                check_tensors(self.architecture, files, self.path, is_gguf=True)
            return files

    def tokenizer_identity(self) -> bytes:
        return b""  # the tokenizer is in the header of the weights


def find_gguf(folder: Path) -> Path | None:
    """The only GGUF file in `folder`, or the first part of it; None if there is none, BadModel if there are several."""
    files = sorted(filter(is_first_part, folder.glob(f"*{GGUF_SUFFIX}")))
    if len(files) > 1:
        raise BadModel(f"{folder} has several models: choose one of {', '.join(path.name for path in files)}")
    return files[0] if files else None


@contextmanager
def known_by_suffix(path: Path) -> Iterator[Path]:
    """The file under a name that ends in .gguf, without which transformers does not know it; Ollama's have none."""
    if path.suffix == GGUF_SUFFIX:
        yield path
        return
    with TemporaryDirectory() as folder:
        link = Path(folder) / f"model{GGUF_SUFFIX}"
        link.symlink_to(path.resolve())
        yield link


def open_gguf(path: Path, name: str) -> GgufCheckpoint:
    """The checkpoint in a GGUF file, or in the parts that it is the first of; BadModel, with the file and the value."""
    headers = read_headers(path)
    header = headers[0]
    is_hybrid = header.architecture in HYBRIDS
    config = hybrid_config(headers) if is_hybrid else gguf_config(headers)
    shape = read_shape(config, str(path))
    if is_hybrid and not isinstance(shape, Architecture):
        raise BadModel(f"{path}: midfill has no decoder for this model of the architecture {header.architecture!r}")
    tokens = len(header.metadata.get("tokenizer.ggml.tokens", ()))
    if tokens > config["vocab_size"]:
        raise BadModel(f"{path}: {tokens} tokens, and an embedding of {config['vocab_size']}")
    layers = {match.group(1) for part in headers for name in part.tensors if (match := _LAYER.match(name))}
    if len(layers) < shape.layers or (len(layers) > shape.layers and not is_hybrid):
        raise BadModel(f"{path}: {header.architecture}.block_count is {shape.layers}, and it has {len(layers)} layers")
    if len(headers) > 1 and not isinstance(shape, Architecture):
        raise BadModel(f"{path} is in {len(headers)} parts: join them with llama-gguf-split --merge")
    return GgufCheckpoint(name, path, config, shape, headers)


def read_headers(path: Path) -> tuple[GgufHeader, ...]:
    """The headers of a file, or of the parts that it is the first of; BadModel if one is missing or damaged."""
    header = read_gguf_header(path)
    count, number = (header.metadata.get(key, default) for key, default in (("split.count", 1), ("split.no", 0)))
    # The first part has the metadata of all: llama-gguf-split leaves the others without even the architecture.
    parts = () if count in (0, 1) else tuple(map(read_gguf_header, _parts(path, count, number)))
    if not any(part.tensors for part in (header, *parts)):
        raise BadModel(f"{path} holds no tensors: it is a vocabulary alone")
    return (header, *(replace(part, metadata=header.metadata) for part in parts[1:]))


def _parts(path: Path, count: Any, number: Any) -> Iterator[Path]:
    match = _PART.fullmatch(path.name)
    if match is None or not isinstance(count, int) or count != int(match.group(3)):
        raise BadModel(f"{path} is one of {count} parts (split.count), and is not named like one")
    if number != 0:
        raise BadModel(f"{path} is part {int(match.group(2))} of {count}: choose the first")
    for part in range(1, count + 1):
        yield path.with_name(f"{match.group(1)}-{part:05}-of-{count:05}{GGUF_SUFFIX}")


def _weights_file(header: GgufHeader, *, is_ours: bool) -> WeightsFile:
    """The file's tensors; of a model that `is_ours` to decode, under the names that they have in a safetensors file."""
    with header.path.open("rb") as file:
        whole = header.path.stat().st_size
        head = file.read(min((tensor.start for tensor in header.tensors.values()), default=whole))
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in header.tensors.items():
        if is_ours and _UNREAD.fullmatch(name):
            continue
        layer = _LAYER.match(name)
        if header.architecture in HYBRIDS and layer and int(layer.group(1)) >= layers_of(header):
            continue  # it drafts further tokens
        ours = _name(header, name) if is_ours else name
        _check_type(header, name, tensor, is_ours=is_ours)
        tensors[ours] = tensor
    return WeightsFile(header.path, head, tensors)


def _check_type(header: GgufHeader, name: str, tensor: StoredTensor, *, is_ours: bool) -> None:
    kind = gguf.GGMLQuantizationType[tensor.type_name]
    if kind.name not in ("F32", "F16") and not hasattr(gguf.quants, kind.name):
        raise BadModel(f"{header.path}: {name} is of the type {kind.name}, which the gguf package cannot read")
    block_values, _ = gguf.GGML_QUANT_SIZES[kind]
    is_vector_of_blocks = is_ours and block_values > 1 and len(tensor.shape) == 1  # which no program writes
    if not tensor.shape or tensor.shape[-1] % block_values or 0 in tensor.shape or is_vector_of_blocks:
        raise BadModel(f"{header.path}: {name} of the type {kind.name} has the shape {tensor.shape}")


def _name(header: GgufHeader, name: str) -> str:
    match = _LAYER_TENSOR.fullmatch(name)
    if match is not None and match.group(2) == "ssm_dt":
        return f"model.layers.{match.group(1)}.linear_attn.dt_bias"
    if match is not None and match.group(2) in _LAYER_NAMES:
        return f"model.layers.{match.group(1)}.{_LAYER_NAMES[match.group(2)]}{match.group(3) or ''}"
    names = _FAMILY_NAMES.get(header.architecture, _NAMES)
    if name not in names:
        raise BadModel(f"{header.path}: midfill's decoder has no use for the tensor {name!r}")
    return names[name]
