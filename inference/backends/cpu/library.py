"""The compiled CPU kernel: its library and C ABI, the models and CPUs that it supports, and the threads that it may
use.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Literal, get_args

from inference.checkpoints.architecture import Architecture
from protocol.errors import MidfillError

Level = Literal["portable", "avx2", "avx2_vnni", "avx512", "avx512_bf16"]
LEVELS: tuple[Level, ...] = get_args(Level)  # in the order of decode.cpp, the best last

VERSION = 10  # of the C ABI and the layouts
FILE = f"_decode{EXTENSION_SUFFIXES[-1]}"  # the suffix without Python's version, as setup.py builds it
LEVEL_VARIABLE = "MIDFILL_KERNEL_LEVEL"


class KernelUnavailable(MidfillError):
    """The kernel cannot be used on this installation or CPU; the message says why."""

    code = "kernel_unavailable"


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class CMatrix(ctypes.Structure):
    """Matrix of model.h."""

    _fields_ = (*_fields(c_void_p, "weights", "scales", "bias", "next"), *_fields(c_int32, "rows", "columns", "type"))


class CLayerWeights(ctypes.Structure):
    """LayerWeights of model.h."""

    _fields_ = (
        *_fields(CMatrix, "qkv", "attention_out", "gate_up", "down"),
        *_fields(c_void_p, "attention_norm", "mlp_norm", "q_norm", "k_norm"),
        *_fields(c_void_p, "taps", "decay", "decay_bias", "delta_norm"),
        ("state", c_int64),
        ("kind", c_int32),
    )


class CModel(ctypes.Structure):
    """Model of model.h."""

    _fields_ = (
        *_fields(c_int32, "layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary", "positions"),
        *_fields(c_int32, "rotary_dim", "gated_output", "kept"),
        *_fields(c_int32, "key_heads", "value_heads", "key_dim", "value_dim", "tiled_heads"),
        *_fields(c_float, "norm_epsilon", "attention_scale", "embedding_scale", "residual_scale"),
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
        *_fields(c_void_p, "before", "after"),
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
    library.midfill_kernel_pack.restype = None
    library.midfill_kernel_pack.argtypes = (c_void_p, c_int64, c_int64, c_int64, c_int, c_void_p)
    library.midfill_kernel_forward.restype = None
    sequences, choices = POINTER(CSequence), POINTER(CChoice)
    library.midfill_kernel_forward.argtypes = (c_void_p, POINTER(c_int32), sequences, c_int, c_void_p, choices)


@cache
def library_digest() -> str:
    """A fingerprint of this build of the kernel; another build may round differently."""
    return sha256(Path(__file__).with_name(FILE).read_bytes()).hexdigest()[:16]


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


MAX_GROUP = 32
HEAD_DIMS = (32, 64, 96, 128, 256)
MOST_KEPT = 3
MOST_OF_A_RULE = 1024  # heads of the delta rule, and numbers in one: 64 and 128 in the largest models
UNIT = 32  # so many numbers at a time are turned to a position, convolved or learnt


def unsupported_reason(architecture: Architecture) -> str | None:
    """Why the kernel cannot run a model of this shape; None if it can."""
    if architecture.head_dim not in HEAD_DIMS:
        return f"a head dimension of {architecture.head_dim} (supported: {', '.join(map(str, HEAD_DIMS))})"
    group = architecture.heads // architecture.kv_heads
    if group > MAX_GROUP:
        return f"{group} attention heads per key-value head: {MAX_GROUP} is the maximum"
    return _unsupported_state(architecture) if architecture.layer_kinds else None


def _unsupported_state(architecture: Architecture) -> str | None:
    """Of a hybrid model."""
    if "attention" not in architecture.layer_kinds:
        return "a model without attention"
    if not 1 <= architecture.kept_inputs <= MOST_KEPT:
        return f"convolutions over {architecture.kept_inputs + 1} tokens (supported: 2 to {MOST_KEPT + 1})"
    sizes = {"rotary dimension": architecture.turned}
    if "convolution" in architecture.layer_kinds:
        sizes["hidden size"] = architecture.hidden
    if rule := architecture.delta:
        counts = {"linear key heads": rule.key_heads, "linear value heads": rule.value_heads}
        dims = {"dimension of a linear key head": rule.key_dim, "dimension of a linear value head": rule.value_dim}
        for name, count in (*counts.items(), *dims.items()):
            if not 1 <= count <= MOST_OF_A_RULE:
                amount = f"{count} {name}" if name in counts else f"a {name} of {count}"
                return f"{amount} (supported: 1 to {MOST_OF_A_RULE})"
        sizes |= dims
    return next((f"a {name} of {size}, no multiple of {UNIT}" for name, size in sizes.items() if size % UNIT), None)


MOST_CORES = 8  # a few cores saturate memory bandwidth; more have not been measured
SYSTEM = Path("/")


def usable_threads(system: Path = SYSTEM) -> int:
    """The hardware threads that this process may keep busy, at least 1.

    Affinity limits the threads, and the quota of a cgroup, as containers have it, the share of time.
    """
    return max(1, math.ceil(min(len(_allowed_threads()), _quota(system))))


def usable_cores(system: Path = SYSTEM) -> int:
    """The cores that this process may keep busy, at least 1 and at most MOST_CORES.

    Two hardware threads of a core count once: they share the resources that limit short forwards.
    """
    siblings = [system / f"sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list" for thread in _allowed_threads()]
    known = all(path.is_file() for path in siblings)  # on Linux
    cores = len({path.read_text() for path in siblings}) if known else len(siblings)
    return min(cores, usable_threads(system), MOST_CORES)


def _allowed_threads() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _quota(system: Path) -> float:
    """CPU time that this process's cgroups allow, in CPUs; infinity if unlimited."""
    return min(map(_quota_of, cgroups("cpu", system)), default=math.inf)


def cgroups(controller: str, system: Path = SYSTEM) -> list[Path]:
    """The folders of the cgroups that limit this process, by one controller; none where there are no cgroups.

    A group's ancestors limit it too. Version 2 has one tree for all controllers, version 1 one for each.
    """
    try:
        lines = (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = system / "sys/fs/cgroup" / controllers
        group = root / path.lstrip("/")
        found += [folder for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return found


def _quota_of(group: Path) -> float:
    """`cpu.max` holds quota and period in microseconds, "max" for none; version 1 has a file for each, -1 for none."""
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (group / "cpu.cfs_period_us").read_text(encoding="ascii")
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
