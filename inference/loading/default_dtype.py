"""Chooses the dtype that a model computes in, and says whether the kernel computes it; imports no torch."""

from __future__ import annotations

from typing import Literal

from inference.backends.cpu.library import choose_level, unavailable_reason
from inference.backends.cpu.support import unsupported_reason
from inference.checkpoints.architecture import Architecture, ModelShape
from protocol.settings import Weights

BFLOAT16_CAPABILITY = (8, 0)
"""Compute capability of the first GPUs that compute in bfloat16 (Ampere); older ones have float16."""


def default_dtype(
    device: str,
    shape: ModelShape,
    *,
    may_use_kernel: bool,
    weights: Weights = "auto",
    capability: tuple[int, int] | None = None,
) -> Literal["float32", "bfloat16", "float16"]:
    """The dtype for a model of this shape on the device; `capability` is a CUDA GPU's, if known.

    bfloat16 where it is fast: on GPUs, and with a CPU kernel that multiplies it. With torch a prompt's KV depends, by
    rounding, on its division into forwards. In float32 the difference is too small to change a suggestion; in bfloat16
    it can turn a near tie. On a GPU the speed is worth it; on a CPU only the kernel, which has no such difference, is.

    GPUs that are too old for bfloat16 compute in float16, or in float32 for int8 weights, which overflow float16.
    """
    if device.startswith("cuda") and capability is not None and capability < BFLOAT16_CAPABILITY:
        return "float32" if weights == "int8" else "float16"
    if not device.startswith("cpu"):
        return "bfloat16"
    return "bfloat16" if may_use_kernel and _kernel_multiplies_bfloat16(shape) else "float32"


def is_on_kernel(device: str, shape: ModelShape, dtype: str, *, may_use_kernel: bool, weights: Weights) -> bool:
    """Whether the CPU kernel computes a model of this shape."""
    if not device.startswith("cpu") or dtype == "float16" or weights == "fp8" or not may_use_kernel:
        return False
    return isinstance(shape, Architecture) and unsupported_reason(shape) is None and unavailable_reason() is None


def _kernel_multiplies_bfloat16(shape: ModelShape) -> bool:
    if not isinstance(shape, Architecture) or unsupported_reason(shape) is not None:
        return False
    return unavailable_reason() is None and choose_level(None) == "avx512_bf16"
