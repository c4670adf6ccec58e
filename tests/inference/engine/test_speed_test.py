from __future__ import annotations

from collections.abc import Sequence

from inference.backends.chunk import Chunk
from inference.backends.model import Choice, DryModel
from inference.engine.speed_test import PROMPT_TOKENS, Speed, can_measure, measure_speed
from kv_store.dry_workspace import DryWorkspace


class Counting(DryModel):
    """Notes its chunks; on its clock a forward takes as many seconds as it has tokens."""

    def __init__(self, context_tokens: int = 1024) -> None:
        super().__init__(lambda: DryWorkspace(1), context_tokens, end_token=0)
        self.chunks: list[tuple[int, int]] = []
        self.now = 0.0

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        (chunk,) = chunks
        self.chunks.append((chunk.start, chunk.stop))
        self.now += len(chunk.token_ids)
        return super().forward(chunks)


def test_one_forward_a_step_over_a_prompt_and_the_tokens_behind_it() -> None:
    model = Counting()
    steps = measure_speed(model, lambda: model.now)
    forwards = []
    while True:
        try:
            next(steps)
        except StopIteration as done:
            speed = done.value
            break
        forwards.append(len(model.chunks))
    assert forwards == list(range(1, len(model.chunks) + 1))
    starts, stops = zip(*model.chunks, strict=True)
    assert starts[0] == 0
    assert starts[1:] == stops[:-1]
    assert PROMPT_TOKENS in stops
    assert speed == Speed(PROMPT_TOKENS * 1e3, 1e3)


def test_models_without_room_or_with_forwards_of_one_shape_are_not_measured() -> None:
    assert can_measure(Counting(520))
    assert not can_measure(Counting(519))
    exact = Counting()
    exact.alignment = 64
    assert not can_measure(exact)


def test_the_best_of_two() -> None:
    assert Speed(100, 5).best_of(Speed(90, 7)) == Speed(90, 5)
    assert Speed(100, 5).best_of(None) == Speed(100, 5)
    assert str(Speed(2345.6, 12.34)) == "512 prompt tokens in 2.3 s, a token in 12 ms"
