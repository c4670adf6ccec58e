"""Forwards on the CPU: a C++ kernel for a few new tokens at a time, and the same in torch, to test it against."""

from inference.kernel.decoder import KernelDecoder
from inference.kernel.fallback import FallbackDecoder
from inference.kernel.library import KernelUnavailable, available, levels, unavailable_reason
from inference.kernel.limits import MAX_NEW_TOKENS, unsupported_reason
from inference.kernel.packing import WeightType

__all__ = [
    "MAX_NEW_TOKENS",
    "FallbackDecoder",
    "KernelDecoder",
    "KernelUnavailable",
    "WeightType",
    "available",
    "levels",
    "unavailable_reason",
    "unsupported_reason",
]
