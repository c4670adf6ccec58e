"""The numbers that a model computes in where nobody says; torch is not imported."""

from __future__ import annotations

from typing import Literal

from inference.architecture import Architecture, ModelShape
from inference.kernel.library import choose_level, unavailable_reason
from inference.kernel.support import unsupported_reason


def default_dtype(device: str, shape: ModelShape, *, may_use_kernel: bool) -> Literal["float32", "bfloat16"]:
    """bfloat16 where it is fast and changes no suggestion: on GPUs, and where the CPU kernel multiplies it.

    Without the kernel a prompt's KV depends, by a rounding, on how it was cut into forwards. In float32 that is too
    little to change a suggestion; in bfloat16 it can be enough.
    """
    if not device.startswith("cpu"):
        return "bfloat16"
    return "bfloat16" if may_use_kernel and _kernel_multiplies_bfloat16(shape) else "float32"


def _kernel_multiplies_bfloat16(shape: ModelShape) -> bool:
    if not isinstance(shape, Architecture) or unsupported_reason(shape) is not None:
        return False
    return unavailable_reason() is None and choose_level(None) == "avx512_bf16"
