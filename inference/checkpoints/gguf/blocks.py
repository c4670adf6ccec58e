"""Dequantizes the blocks of GGUF tensors; the CPU kernel reads them as they are: `inference/backends/cpu/stored.py`."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bytes = NDArray[np.uint8]  # [rows, bytes of a row]

_UNQUANTIZED: dict[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantized(stored: Bytes, type_name: str) -> Tensor:
    """[rows, columns] of any type that the gguf package knows, in its own memory; float32 if it is quantized."""
    if type_name in _UNQUANTIZED:
        return torch.from_numpy(stored.copy()).view(_UNQUANTIZED[type_name])
    values: NDArray[Any] = gguf.dequantize(stored, gguf.GGMLQuantizationType[type_name])
    return torch.from_numpy(values)
