"""Metadata of GGUF files: reads the header, and describes the model as its config.json would."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.checkpoints.architecture import DIVIDED
from inference.checkpoints.weights import StoredTensor
from protocol.errors import BadModel

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 2**16
"""Metadata entries, and tensors: real files have a few dozen, and a few thousand."""
MOST_ELEMENTS = 2**22
"""Elements of a metadata array: the largest vocabularies and lists of merges have half a million."""
DEFAULT_ALIGNMENT = 32

_ARRAY, _STRING, _BOOL = 9, 8, 7
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a complete GGUF file: metadata by key, with arrays as tuples, and tensors by name, in order."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the model's family, which prefixes its keys; empty if the file has none."""
        name = self.metadata.get("general.architecture", "")
        return name if isinstance(name, str) else ""

    def of_model(self, key: str, default: Any = None) -> Any:
        """The value of a key that the architecture prefixes, such as `block_count`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of `path`; BadModel, naming the file and the fault, if it is missing, truncated or no GGUF file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Reader(content).header(path)
    except FileNotFoundError as error:
        raise BadModel(f"{path} is missing") from error
    except _Fault as error:
        raise BadModel(f"{path} is not a GGUF file that midfill can read, or is damaged: {error}") from error
    except (OSError, ValueError) as error:  # mmap refuses an empty file with ValueError
        raise BadModel(f"{path} cannot be read as a GGUF file: {error}") from error


class _Fault(Exception):
    """What is wrong with a file."""


class _Reader:
    """Reads values from the beginning of a file on; a value beyond its end is a fault."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._size = len(content)
        self._at = 0

    def header(self, path: Path) -> GgufHeader:
        if self._content[: len(MAGIC)] != MAGIC:
            raise _Fault(f"it begins with {self._content[: len(MAGIC)]!r}, not with {MAGIC!r}")
        self._at = len(MAGIC)
        version = self._number("I")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            raise _Fault("its numbers are big-endian" if swapped else f"its version is {version}")
        tensor_count, entry_count = (self._count("Q", MOST_ENTRIES) for _ in range(2))
        metadata = {self._string(): self._value(self._number("I")) for _ in range(entry_count)}
        listed = [self._tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Fault(f"general.alignment is {alignment!r}")
        data = -(-self._at // alignment) * alignment
        tensors = {
            name: StoredTensor(kind, shape, data + at, data + at + size) for name, kind, shape, at, size in listed
        }
        if len(tensors) < len(listed):
            raise _Fault("it has two tensors of one name")
        end = max((tensor.stop for tensor in tensors.values()), default=0)
        if end > self._size:
            raise _Fault(f"it has {self._size} bytes, and its header describes {end}: download it again")
        return GgufHeader(path, metadata, tensors)

    def _tensor(self) -> tuple[str, str, tuple[int, ...], int, int]:
        """Name, type, shape, offset in the data and size in bytes of the next tensor."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        name = self._string()
        shape = tuple(reversed([self._number("Q") for _ in range(self._count("I", 8))]))
        number, offset = self._number("I"), self._number("Q")
        try:
            kind = GGMLQuantizationType(number)
        except ValueError as error:
            raise _Fault(f"the tensor {name!r} has the unknown type {number}") from error
        block_values, block_bytes = GGML_QUANT_SIZES[kind]
        return name, kind.name, shape, offset, math.prod(shape) // block_values * block_bytes

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(self._code(kind))
        kind = self._number("I")
        count = self._count("Q", MOST_ELEMENTS)
        if kind == _STRING:
            return self._strings(count)
        return struct.unpack(f"<{count}{self._code(kind)}", self._take(count * struct.calcsize(f"<{self._code(kind)}")))

    def _code(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise _Fault(f"a metadata value has the unknown type {kind}")
        return _NUMBERS[kind]

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _count(self, code: str, most: int) -> int:
        count: int = self._number(code)
        if count > most:
            raise _Fault(f"it claims {count} entries where at most {most} are plausible")
        return count

    def _string(self) -> str:
        return self._take(self._number("Q")).decode("utf-8", "replace")

    def _strings(self, count: int) -> tuple[str, ...]:
        """As `_string`, `count` times: a vocabulary has 100,000 of them."""
        content, at, length_at = self._content, self._at, struct.Struct("<Q").unpack_from
        strings = []
        try:
            for _ in range(count):
                (length,) = length_at(content, at)
                at += 8 + length
                strings.append(content[at - length : at].decode("utf-8", "replace"))
        except (struct.error, OverflowError):  # a length leads beyond the file
            at = self._size + 1
        self._at = at
        self._take(0)  # checks that the last one ends within the file
        return tuple(strings)

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > self._size:
            raise _Fault(f"it ends after {self._size} bytes, within its header")
        return self._content[start : self._at]


OURS = ("llama", "qwen2", "qwen3")
"""The architectures of llama.cpp that our decoder runs; its `llama` includes Mistral."""

# Keys that change what a layer computes, with the values that change nothing; absent keys and 0 change nothing either.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "expert_count": (),
    "attention.causal": (True,),
    "attention.clamp_kqv": (),
    "attention.max_alibi_bias": (),
    "attention.temperature_scale": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "embedding_scale": (1,),
    "residual_scale": (1,),
    "logit_scale": (1,),
    "use_parallel_residual": (),
    "rope.dimension_sections": (),
    "rope.scaling.attn_factor": (1,),
    "rope.scaling.alpha": (),
    "rope.scaling.yarn_log_multiplier": (),
}
_REQUIRED = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length"),
    *("attention.head_count", "attention.layer_norm_rms_epsilon"),
)
_ROPE_FACTORS = "rope_freqs.weight"


def gguf_config(parts: Sequence[GgufHeader]) -> dict[str, Any]:
    """The model's config, in the terms of transformers; BadModel, with the file and the value, if it is unsupported.

    The first of a model's parts has the fields, and any of them tensors. Imports transformers for an architecture that
    is not one of OURS.
    """
    header = parts[0]
    config = _our_config(parts) if header.architecture in OURS else _generic_config(parts)
    told = {key: header.metadata.get(f"midfill.{key}") for key in ("fim_format", "fragments_suffice")}
    return config | {"midfill": {key: value for key, value in told.items() if value is not None}}


def _our_config(parts: Sequence[GgufHeader]) -> dict[str, Any]:
    header = parts[0]
    for key in _REQUIRED:
        if header.of_model(key) is None:
            raise BadModel(f"{header.path} has no {header.architecture}.{key}: it is incomplete")
    heads, hidden = _number(header, "attention.head_count"), _number(header, "embedding_length")
    head_dim = _number(header, "attention.key_length", hidden // heads if heads else None)
    _check_attention(header, head_dim)
    for key, neutral in _NEUTRAL.items():
        value = header.of_model(key)
        if value and value not in neutral:
            raise BadModel(_unsupported(header, key, value))
    window = _number(header, "attention.sliding_window")
    return {
        "model_type": header.architecture,
        "num_hidden_layers": _number(header, "block_count"),
        "hidden_size": hidden,
        "intermediate_size": _number(header, "feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": _number(header, "attention.head_count_kv"),
        "head_dim": head_dim,
        "vocab_size": _vocabulary(parts),
        "rms_norm_eps": _number(header, "attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": _number(header, "context_length"),
        "tie_word_embeddings": _is_tied(parts),
        "use_sliding_window": bool(window),
        "sliding_window": window,
        "rope_parameters": _rope(parts, head_dim),
    }


def _check_attention(header: GgufHeader, head_dim: Any) -> None:
    """Refuse heads whose values have another size than their keys, and RoPE of a part of a head."""
    if not isinstance(head_dim, int) or head_dim < 1:
        raise BadModel(_unsupported(header, "attention.key_length", head_dim))
    for key in ("attention.value_length", "rope.dimension_count"):
        if _number(header, key, head_dim) != head_dim:
            raise BadModel(f"{_unsupported(header, key, header.of_model(key))}, only {head_dim}, the size of a head")
    scale = _number(header, "attention.scale")
    if scale and not math.isclose(scale, head_dim**-0.5, rel_tol=1e-5):
        raise BadModel(_unsupported(header, "attention.scale", scale))


def _rope(parts: Sequence[GgufHeader], head_dim: Any) -> dict[str, Any]:
    header = parts[0]
    theta = _number(header, "rope.freq_base", 10000.0)
    factor = _number(header, "rope.scaling.factor", _number(header, "rope.scale_linear", 1.0))
    kind = header.of_model("rope.scaling.type", "none" if factor in (0, 1) else "linear")  # as in llama.cpp
    divisors = _rope_factors(parts, head_dim)
    if kind == "none":
        divided = {"rope_type": DIVIDED, "divisors": divisors} if divisors else {"rope_type": "default"}
        return {"rope_theta": theta, **divided}
    if kind not in ("linear", "yarn") or divisors:
        raise BadModel(_unsupported(header, "rope.scaling.type", kind))
    return {
        "rope_type": kind,
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": _number(header, "rope.scaling.original_context_length"),
    }


def _rope_factors(parts: Sequence[GgufHeader], head_dim: Any) -> list[float]:
    """What each frequency is divided by, as llama.cpp stores the RoPE scaling of Llama 3; empty if there is none."""
    header, tensor = _find(parts, _ROPE_FACTORS)
    if tensor is None:
        return []
    if tensor.type_name != "F32" or tensor.shape != (head_dim // 2,):
        raise BadModel(f"{header.path}: {_ROPE_FACTORS} is {tensor.type_name} of the shape {tensor.shape}")
    with header.path.open("rb") as file:
        file.seek(tensor.start)
        factors = struct.unpack(f"<{tensor.values}f", file.read(tensor.stop - tensor.start))
    if not all(math.isfinite(factor) and factor > 0 for factor in factors):
        raise BadModel(f"{header.path}: {_ROPE_FACTORS} has values that frequencies cannot be divided by")
    return list(factors)


def _generic_config(parts: Sequence[GgufHeader]) -> dict[str, Any]:
    """By transformers' own table of the keys of an architecture."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    mapping: dict[str, dict[str, str | None]] = GGUF_CONFIG_MAPPING  # type: ignore[assignment] # it is untyped
    header = parts[0]
    families = {_plain(family): family for family in mapping if family not in ("general", "tokenizer")}
    family = families.get(_plain(header.architecture))
    if family is None:
        raise BadModel(
            f"{header.path}: GGUF files of the architecture {header.architecture!r} are read neither by midfill nor "
            "by transformers: use the model's safetensors files"
        )
    config = {
        name: list(value) if isinstance(value, tuple) else value
        for key, name in mapping[family].items()
        if name is not None and (value := header.of_model(key)) is not None
    }
    config.setdefault("vocab_size", _vocabulary(parts))
    if "rope.freq_base" not in mapping[family] and (theta := _number(header, "rope.freq_base")) is not None:
        config["rope_theta"] = theta
    model_type = "gemma3_text" if family == "gemma3" else family  # these files hold the text model alone
    return config | {"model_type": model_type, "tie_word_embeddings": _is_tied(parts)}


def _plain(family: str) -> str:
    return family.replace("-", "").replace("_", "")


def _vocabulary(parts: Sequence[GgufHeader]) -> int:
    _, embedding = _find(parts, "token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise BadModel(f"{parts[0].path} has no embedding (token_embd.weight): it is no language model")
    return embedding.shape[0]


def _is_tied(parts: Sequence[GgufHeader]) -> bool:
    return _find(parts, "output.weight")[1] is None


def _find(parts: Sequence[GgufHeader], name: str) -> tuple[GgufHeader, StoredTensor | None]:
    """The tensor of this name and the part that has it; the first part and None if there is no such tensor."""
    found = ((part, part.tensors[name]) for part in parts if name in part.tensors)
    return next(found, (parts[0], None))


def _number(header: GgufHeader, key: str, default: Any = None) -> Any:
    """A number that holds for all layers; BadModel for anything else."""
    value = header.of_model(key, default)
    if isinstance(value, tuple) and len(set(value)) == 1:
        value = value[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is not None and not is_number:
        raise BadModel(f"{_unsupported(header, key, value)}: it has to be one number for all layers")
    return value


def _unsupported(header: GgufHeader, key: str, value: object) -> str:
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}..."
    return f"{header.path}: {header.architecture}.{key} is {shown}, which midfill does not support"
