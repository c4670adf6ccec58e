"""Has graphs recorded for chunks, and tells forwards that replay one from those that launch every kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.model import Chunk

MOST_RECORDINGS = 400


@dataclass(slots=True)
class Eager:
    """How many forwards were not replayed."""

    forwards: int = 0


@contextmanager
def counting_eager(graphed: GraphedDecoder) -> Iterator[Eager]:
    """Counts the forwards that the decoder without graphs computes."""
    eager, plain = Eager(), graphed.plain
    forward = plain.forward

    def counted(*args: object, **kwargs: object) -> object:
        eager.forwards += 1
        return forward(*args, **kwargs)  # type: ignore[arg-type]

    plain.forward = counted  # type: ignore[method-assign, assignment]
    try:
        yield eager
    finally:
        del plain.forward


def is_replayed(graphed: GraphedDecoder, chunk: Chunk) -> bool:
    """Whether a forward of the chunk, which this runs, replays a graph."""
    with counting_eager(graphed) as eager:
        graphed.forward([chunk])
    return not eager.forwards


def record_for(graphed: GraphedDecoder, chunk: Chunk) -> None:
    """Have the smallest graph recorded that covers the chunk; RuntimeError if none does then.

    A forward without its graph, or with a larger one, notes what it misses, and that is recorded first.
    """
    graphed.forward([chunk])
    graphed.prepare()
    if not is_replayed(graphed, chunk):
        raise RuntimeError(f"no graph is recorded for {len(chunk.token_ids)} tokens behind {chunk.start}")


def record_all(prepare: Callable[[], bool]) -> int:
    """Record until nothing is missing; how many steps that took."""
    return sum(1 for _ in takewhile(lambda _: prepare(), range(MOST_RECORDINGS)))
