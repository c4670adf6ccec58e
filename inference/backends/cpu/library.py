"""The compiled library: its location, its C ABI, and the instruction-set levels that this CPU supports."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Literal, get_args

from protocol.errors import MidfillError

Level = Literal["portable", "avx2", "avx2_vnni", "avx512", "avx512_bf16"]
LEVELS: tuple[Level, ...] = get_args(Level)  # in the order of decode.cpp, the best last

VERSION = 7  # of the C ABI and the layouts
FILE = f"_decode{EXTENSION_SUFFIXES[-1]}"  # the suffix without Python's version, as setup.py builds it
LEVEL_VARIABLE = "MIDFILL_KERNEL_LEVEL"


class KernelUnavailable(MidfillError):
    """The kernel cannot be used on this installation or CPU; the message says why."""

    code = "kernel_unavailable"


class CMatrix(ctypes.Structure):
    """Matrix of model.h."""

    _fields_ = (
        ("weights", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("type", ctypes.c_int32),
    )


class CLayerWeights(ctypes.Structure):
    """LayerWeights of model.h."""

    _fields_ = (
        ("qkv", CMatrix),
        ("attention_out", CMatrix),
        ("gate_up", CMatrix),
        ("down", CMatrix),
        ("attention_norm", ctypes.c_void_p),
        ("mlp_norm", ctypes.c_void_p),
        ("q_norm", ctypes.c_void_p),
        ("k_norm", ctypes.c_void_p),
    )


class CModel(ctypes.Structure):
    """Model of model.h."""

    _fields_ = (
        ("layers", ctypes.c_int32),
        ("hidden", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("vocabulary", ctypes.c_int32),
        ("positions", ctypes.c_int32),
        ("norm_epsilon", ctypes.c_float),
        ("attention_scale", ctypes.c_float),
        ("embedding", CMatrix),
        ("layer_weights", ctypes.POINTER(CLayerWeights)),
        ("final_norm", ctypes.c_void_p),
        ("head", CMatrix),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
    )


class CSequence(ctypes.Structure):
    """Sequence of model.h."""

    _fields_ = (
        ("kv", ctypes.c_void_p),
        ("layer_stride", ctypes.c_int64),
        ("value_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("kv_type", ctypes.c_int32),
        ("tokens", ctypes.c_int32),
        ("start", ctypes.c_int32),
        ("wanted", ctypes.c_int32),
    )


class CChoice(ctypes.Structure):
    """Choice of model.h."""

    _fields_ = (("token_id", ctypes.c_int32), ("logprob", ctypes.c_float))


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
    library.midfill_kernel_create.argtypes = (
        ctypes.POINTER(CModel),
        ctypes.c_int,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_void_p),
    )
    library.midfill_kernel_destroy.restype = None
    library.midfill_kernel_destroy.argtypes = (ctypes.c_void_p,)
    library.midfill_kernel_forward.restype = None
    library.midfill_kernel_forward.argtypes = (
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.POINTER(CSequence),
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.POINTER(CChoice),
    )


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
