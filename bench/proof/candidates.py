"""Section 15: the products of a layer, as short forwards compute them today and as one kernel for each would.

Attention apart, a layer of `inference/backends/llama/fused.py` is four products of torch with two norms and a gate between
them. `products.py` has them as four kernels. Both are replayed from a graph over as many layers as do not fit into a GPU's
cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from proof.card import Card
from proof.correctness import distance
from proof.runner import Check, Finding, Row, Section
from proof.sizes import Sizes
from torch import Tensor

from inference.backends import cuda
from inference.checkpoints.architecture import Architecture

ROWS = (1, 4, 16)
READ_BYTES = 256 * 2**20
"""So many bytes of weights are read before one is read again: several times a GPU's cache."""
MOST_ERROR = 1e-2
NAMES = ("135M", "1.5B", "7B")

Recorder = Callable[[Callable[[], None]], cuda.Recording]


def section(card: Card, sizes: Sizes) -> Section:
    """Each product by its fastest tile, and a whole layer of these."""
    models = {name: shape for name, shape in sizes.models.items() if name in NAMES}
    return Section(15, "candidates", 25, lambda: _begin(card, models), _conclude)


def _begin(card: Card, models: Mapping[str, Architecture]) -> Iterator[Row]:
    card.check_triton()
    yield from measure(card, models, cuda.graph_recorder())


def measure(card: Card, models: Mapping[str, Architecture], record: Recorder, read_bytes: int = READ_BYTES) -> Iterator[Row]:
    """A row for each number of rows of each model, the shortest first: what is cut are long chunks of large models."""
    with torch.inference_mode():
        for name, shape in models.items():
            layers = _layers(shape, card.device, read_bytes)
            for rows in ROWS:
                x = torch.randn(rows, shape.hidden, dtype=torch.bfloat16, device=card.device)
                yield {"model": name, "rows": rows, **_compared(card, shape, layers, x, record)}


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    norm: Tensor

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (self.qkv, self.out, self.gate_up, self.down))


def _layers(shape: Architecture, device: torch.device, read_bytes: int) -> list[_Layer]:
    heads = shape.heads * shape.head_dim
    qkv = heads + 2 * shape.kv_heads * shape.head_dim

    def matrix(outputs: int, inputs: int) -> Tensor:
        return torch.randn(outputs, inputs, dtype=torch.bfloat16, device=device) * inputs**-0.5

    layers = list[_Layer]()
    while sum(layer.nbytes for layer in layers) < read_bytes:
        norm = torch.rand(shape.hidden, dtype=torch.bfloat16, device=device)
        bias = torch.randn(qkv, dtype=torch.bfloat16, device=device)
        gate_up = matrix(2 * shape.intermediate, shape.hidden)
        down = matrix(shape.hidden, shape.intermediate)
        layers.append(_Layer(matrix(qkv, shape.hidden), bias, matrix(shape.hidden, heads), gate_up, down, norm))
    return layers


def _compared(card: Card, shape: Architecture, layers: Sequence[_Layer], x: Tensor, record: Recorder) -> Row:
    from proof.products import ALONE, TOGETHER, Tile, product

    from inference.backends.llama.fused import add_and_norm, gate

    heads, epsilon = shape.heads * shape.head_dim, shape.norm_epsilon
    attended = torch.randn(len(x), heads, dtype=x.dtype, device=x.device)
    gated = torch.randn(len(x), shape.intermediate, dtype=x.dtype, device=x.device)
    tiles = ALONE if len(x) == 1 else TOGETHER
    result = torch.empty_like(x)

    def us_of(work: Callable[[_Layer], object]) -> float:
        """Microseconds of a layer."""
        replay = record(lambda: [work(layer) for layer in layers] and None).replay
        return card.median_s(replay) / len(layers) * 1e6

    def today(layer: _Layer) -> None:
        y = x.clone()
        F.linear(add_and_norm(y, None, layer.norm, 1.0, epsilon), layer.qkv, layer.qkv_bias)
        added = F.linear(attended, layer.out)
        normed = add_and_norm(y, added, layer.norm, 1.0, epsilon)
        added = F.linear(gate(F.linear(normed, layer.gate_up)), layer.down)
        result.copy_(add_and_norm(y, added, layer.norm, 1.0, epsilon))

    kinds: dict[str, Callable[[Tile, _Layer], Tensor]] = {
        "qkv": lambda tile, layer: product(x, layer.qkv, tile, bias=layer.qkv_bias, norm=layer.norm, epsilon=epsilon),
        "out": lambda tile, layer: product(attended, layer.out, tile, added_to=x.clone()),
        "gate_up": lambda tile, layer: product(x, layer.gate_up, tile, norm=layer.norm, epsilon=epsilon, gated=True),
        "down": lambda tile, layer: product(gated, layer.down, tile, added_to=x.clone()),
    }
    found: dict[str, Any] = {}
    best: dict[str, Tile] = {}
    for kind, run in kinds.items():
        times = {tile: us_of(partial(run, tile)) for tile in tiles}
        best[kind] = min(times, key=times.__getitem__)
        found[kind] = {str((tile.outputs, tile.inputs, tile.warps, tile.stages)): us for tile, us in times.items()}

    def candidate(layer: _Layer) -> None:
        y = x.clone()
        product(y, layer.qkv, best["qkv"], bias=layer.qkv_bias, norm=layer.norm, epsilon=epsilon)
        product(attended, layer.out, best["out"], added_to=y)
        inner = product(y, layer.gate_up, best["gate_up"], norm=layer.norm, epsilon=epsilon, gated=True)
        product(inner, layer.down, best["down"], added_to=y)
        result.copy_(F.rms_norm(y, (y.shape[1],), layer.norm, epsilon))

    kinds_us = {"today_us": us_of(today), "candidate_us": us_of(candidate)}
    errors = []
    for work in (today, candidate):
        work(layers[0])
        errors.append(distance(result.double().cpu(), _exact(layers[0], x, attended, epsilon)))
    return {**kinds_us, "today_error": errors[0], "error": errors[1], "bytes": layers[0].nbytes, "tiles": found}


def _exact(layer: _Layer, x: Tensor, attended: Tensor, epsilon: float) -> Tensor:
    """What `today` and `candidate` compute, in float64 on the CPU."""
    x, attended = x.double().cpu(), attended.double().cpu()
    out, gate_up, down, norm = (each.double().cpu() for each in (layer.out, layer.gate_up, layer.down, layer.norm))
    y = x + F.linear(attended, out)
    opened, up = F.linear(F.rms_norm(y, (y.shape[1],), norm, epsilon), gate_up).chunk(2, dim=-1)
    return F.rms_norm(y + F.linear(F.silu(opened) * up, down), (y.shape[1],), norm, epsilon)


def _conclude(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in (row for row in rows if "candidate_us" in row):
        what = f"{row['model']}, {row['rows']} rows"
        yield Check(f"{what}: the candidate is right", row["error"] < MOST_ERROR, f"error {row['error']:.1e}")
        speeds = {way: row["bytes"] / row[f"{way}_us"] / 1e6 for way in ("today", "candidate")}
        times = ", ".join(f"{way} {row[f'{way}_us']:.1f} us ({tb_s:.2f} TB/s)" for way, tb_s in speeds.items())
        tiles = ", ".join(f"{kind} {min(times, key=times.__getitem__)}" for kind, times in row["tiles"].items())
        yield f"{what:<16}{times}; best tiles: {tiles}"
