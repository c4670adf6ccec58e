"""The compiled library: its location, its C ABI, and the instruction-set levels that this CPU supports."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Literal, get_args

from protocol.errors import MidfillError

Level = Literal["portable", "avx2", "avx2_vnni", "avx512", "avx512_bf16"]
LEVELS: tuple[Level, ...] = get_args(Level)  # in the order of decode.cpp, the best last

VERSION = 7  # of the C ABI and the layouts
FILE = f"_decode{EXTENSION_SUFFIXES[-1]}"  # the suffix without Python's version, as setup.py builds it
LEVEL_VARIABLE = "MIDFILL_KERNEL_LEVEL"


class KernelUnavailable(MidfillError):
    """The kernel cannot be used on this installation or CPU; the message says why."""

    code = "kernel_unavailable"


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class CMatrix(ctypes.Structure):
    """Matrix of model.h."""

    _fields_ = (*_fields(c_void_p, "weights", "scales", "bias"), *_fields(c_int32, "rows", "columns", "type"))


class CLayerWeights(ctypes.Structure):
    """LayerWeights of model.h."""

    _fields_ = (
        *_fields(CMatrix, "qkv", "attention_out", "gate_up", "down"),
        *_fields(c_void_p, "attention_norm", "mlp_norm", "q_norm", "k_norm"),
    )


class CModel(ctypes.Structure):
    """Model of model.h."""

    _fields_ = (
        *_fields(c_int32, "layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary", "positions"),
        *_fields(c_float, "norm_epsilon", "attention_scale"),
        ("embedding", CMatrix),
        ("layer_weights", POINTER(CLayerWeights)),
        ("final_norm", c_void_p),
        ("head", CMatrix),
        *_fields(c_void_p, "cosines", "sines"),
    )


class CSequence(ctypes.Structure):
    """Sequence of model.h."""

    _fields_ = (
        ("kv", c_void_p),
        *_fields(c_int64, "layer_stride", "value_stride", "head_stride"),
        *_fields(c_int32, "kv_type", "tokens", "start", "wanted"),
    )


class CChoice(ctypes.Structure):
    """Choice of model.h."""

    _fields_ = (("token_id", c_int32), ("logprob", c_float))


@cache
def load_library() -> ctypes.CDLL:
    """The library with its functions declared; KernelUnavailable, with the reason, if it is unusable."""
    path = Path(__file__).with_name(FILE)
    if not path.is_file():
        raise KernelUnavailable(
            "the CPU kernel was not built when midfill was installed: install a C++ compiler (GCC or Clang), "
            "then reinstall midfill"
        )
    try:
        library = ctypes.CDLL(str(path))
        version = library.midfill_kernel_version()
    except (OSError, AttributeError) as error:
        raise KernelUnavailable(f"{path} cannot be loaded: {error}") from error
    if version != VERSION:
        raise KernelUnavailable(f"{path} was built by another version of midfill: reinstall midfill")
    _declare(library)
    return library


def _declare(library: ctypes.CDLL) -> None:
    library.midfill_kernel_create.restype = ctypes.c_char_p
    library.midfill_kernel_create.argtypes = (POINTER(CModel), c_int, c_int, POINTER(c_void_p))
    library.midfill_kernel_destroy.restype = None
    library.midfill_kernel_destroy.argtypes = (c_void_p,)
    library.midfill_kernel_forward.restype = None
    sequences, choices = POINTER(CSequence), POINTER(CChoice)
    library.midfill_kernel_forward.argtypes = (c_void_p, POINTER(c_int32), sequences, c_int, c_void_p, choices)


def unavailable_reason() -> str | None:
    """Why the kernel cannot be used; None if it can."""
    try:
        load_library()
    except KernelUnavailable as error:
        return str(error)
    return None


def levels() -> tuple[Level, ...]:
    """The levels that this CPU supports, the best one last."""
    library = load_library()
    return tuple(level for index, level in enumerate(LEVELS) if library.midfill_kernel_runs(index))


def choose_level(wanted: Level | None, environment: Mapping[str, str] = os.environ) -> Level:
    """The level requested by argument or environment; otherwise the best that this CPU supports."""
    here = levels()
    name = wanted or environment.get(LEVEL_VARIABLE)
    if not name:
        return here[-1]
    for level in here:
        if level == name:
            return level
    raise KernelUnavailable(f"unknown level {name!r}: this CPU supports {', '.join(here)}")
