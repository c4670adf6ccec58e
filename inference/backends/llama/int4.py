"""Weights of 4 bits on a GPU, for torch's own product of them: it reads 5 bits per weight, and computes in bfloat16.

They are those of the CPU kernel's int4, whose scales and minima are rounded to bfloat16 here: a matrix of a GGUF file
that has 4 bits and a group of 32 columns keeps its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from inference.backends.layer_weights import WeightsSource
from inference.backends.llama.quantized import changed_layer
from inference.backends.llama.weights import VALUES_AT_ONCE, DecoderWeights
from inference.checkpoints.quantization import quantize
from inference.checkpoints.quantized_matrix import CENTRES, GROUP, QuantizedMatrix

ROWS, TILES, TILE = 8, (8, 4, 2), 16
"""The kernel takes multiples of ROWS rows, and of TILE columns times one of TILES, of which the largest is fastest."""
CENTRE = 8
"""The number that torch's kernel subtracts before it multiplies by the scale."""


class Matrix(Protocol):
    """A tensor, or a matrix that is quantized or stored so, whose rows are read when they are taken."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Int4Matrix:
    """A matrix [rows, columns] on a GPU, which `torch.nn.functional.linear` takes in place of a tensor."""

    packed: Tensor  # int32 [rows / 8, columns / (16 * tiles), 32, tiles / 2]: in an order of the kernel's own
    scales: Tensor  # bfloat16 [columns / GROUP, rows, 2]: a group's scale, and the weight that is CENTRE

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes + self.scales.nbytes

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _linear(*args, **(kwargs or {})) if func is F.linear else NotImplemented


def int4_weights(source: WeightsSource[Matrix], device: torch.device, *, tied: bool) -> DecoderWeights:
    """The weights on `device`, matrices of layers packed there one by one, all else in bfloat16.

    Embedding and head, which is the embedding if `tied`, lose the most by 4 bits. Matrices whose sides do not suit the
    kernel are not quantized either.
    """

    def packed(matrix: Matrix) -> Tensor:
        return cast(Tensor, _packed(matrix, device)) if _suits(matrix) else _plain(matrix, device)

    embedding = _plain(source.embedding, device)
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(changed_layer(layer, packed, lambda tensor: _plain(tensor, device)) for layer in source.layers),
        final_norm=_plain(source.final_norm, device),
        head=embedding if tied else _plain(source.head, device),
    )


def _suits(matrix: Matrix) -> bool:
    rows, columns = matrix.shape
    return rows % ROWS == 0 and columns % (TILE * TILES[-1]) == 0


def _packed(matrix: Matrix, device: torch.device) -> Int4Matrix:
    pieces = list(map(_int4, _pieces(matrix, device)))
    columns = matrix.shape[1]
    tiles = next(tiles for tiles in TILES if columns % (TILE * tiles) == 0)
    scales = torch.cat([piece.scales for piece in pieces]).float()
    minima = torch.cat([piece.minima for piece in pieces if piece.minima is not None])
    pairs = torch.cat([piece.numbers[:, ::2] << 4 | piece.numbers[:, 1::2] for piece in pieces])
    return Int4Matrix(
        torch._convert_weight_to_int4pack(pairs, tiles),
        torch.stack([scales, minima + CENTRE * scales], dim=-1).to(torch.bfloat16).transpose(0, 1).contiguous(),
    )


def _int4(piece: Tensor | QuantizedMatrix) -> QuantizedMatrix:
    if isinstance(piece, Tensor):
        return quantize(piece, "int4")
    minima = piece.scales * -CENTRES[piece.type] if piece.minima is None else piece.minima
    return QuantizedMatrix("int4", piece.numbers, piece.scales, minima)


def _plain(matrix: Matrix, device: torch.device) -> Tensor:
    whole = torch.empty(matrix.shape, dtype=torch.bfloat16, device=device)
    row = 0
    for piece in _pieces(matrix, device):
        values = piece if isinstance(piece, Tensor) else piece.dequantized()
        whole[row : row + len(values)] = values
        row += len(values)
    return whole


def _pieces(matrix: Matrix, device: torch.device) -> Iterator[Tensor | QuantizedMatrix]:
    """A few rows at a time, on the device: temporaries of a whole matrix take several times its memory."""
    at_once = max(1, VALUES_AT_ONCE // math.prod(matrix.shape[1:]))
    for row in range(0, matrix.shape[0], at_once):
        piece = matrix[row : row + at_once]
        on_device = partial(_on_device, device=device)
        yield piece.map(on_device) if isinstance(piece, QuantizedMatrix) else on_device(piece)


def _on_device(values: Any, device: torch.device) -> Tensor:
    """A tensor, or an array of NumPy's, there."""
    return torch.as_tensor(values).to(device)


def _linear(x: Tensor, weight: Int4Matrix, bias: Tensor | None = None) -> Tensor:
    product: Tensor = torch._weight_int4pack_mm(x, weight.packed, GROUP, weight.scales)
    return product if bias is None else product + bias
