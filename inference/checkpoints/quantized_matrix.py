"""A matrix of integers with a scale, and for some types a minimum, per group of columns, as in GGUF files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inference.checkpoints.weights import QuantizedType

GROUP = 32  # columns that share a scale; half as many in int6
CENTRES: Mapping[QuantizedType, int] = {"centred_int4": 8, "int6": 32}
"""The numbers that stand for zero, of unsigned types without minima."""


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """int8: weight = number * scale, numbers from -127 to 127.

    int4, int5: weight = number * scale + minimum, numbers from 0 to 15, or to 31. centred_int4, int6: weight =
    (number - centre) * scale, numbers from 0 to 15 and a centre of 8, or to 63 and 32.
    """

    type: QuantizedType  # of the parts, which are all NumPy's arrays, or all tensors:
    numbers: Any  # [rows, columns]: int8; uint8 for the other types
    scales: Any  # float16 [rows, columns / GROUP]; int6: [rows, 2 * columns / GROUP]
    minima: Any  # float16 [rows, columns / GROUP], for int4 and int5

    @property
    def shape(self) -> Any:
        return self.numbers.shape

    def map(self, change: Callable[[Any], Any]) -> QuantizedMatrix:
        """The matrix with `change` applied to all its tensors."""
        minima = None if self.minima is None else change(self.minima)
        return QuantizedMatrix(self.type, change(self.numbers), change(self.scales), minima)

    def __getitem__(self, rows: slice) -> QuantizedMatrix:
        return self.map(lambda tensor: tensor[rows])

    def dequantized(self) -> Any:
        """float32 [rows, columns], if the parts are tensors."""
        centred = self.numbers.float() - CENTRES.get(self.type, 0)
        groups = centred.view(*self.scales.shape, -1) * self.scales.float().unsqueeze(2)
        if self.minima is not None:
            groups += self.minima.float().unsqueeze(2)
        return groups.flatten(1)
