"""Short forwards on the CPU: a C++ kernel for a few new tokens, and the same in torch where it cannot be had."""

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
