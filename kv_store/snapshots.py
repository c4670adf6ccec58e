"""Snapshots: states of a sequence's recurrent layers after some of its tokens, from which a forward can go on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

MOST_SNAPSHOTS = 64
"""Of a sequence: more would hardly shorten the way from one to the next."""
FEWEST_SNAPSHOTS = 8
"""By budget: at the anchor, at the ends of some prompts, and on the way through the prefix."""
BUDGET_BYTES = 256 * 2**20
"""Of a workspace, unless FEWEST_SNAPSHOTS need more or MOST_SNAPSHOTS need less."""


def budget_of_a_slot(snapshot_bytes: int) -> int:
    """The budget of a workspace, for snapshots of this size."""
    return max(FEWEST_SNAPSHOTS * snapshot_bytes, min(MOST_SNAPSHOTS * snapshot_bytes, BUDGET_BYTES))


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The state of all recurrent layers after some tokens; nothing writes into it, so it may be shared."""

    state: object
    size_bytes: int


class Snapshots:
    """The snapshots of one sequence by position, the number of tokens before it; a state cannot be cropped to another.

    Beyond the budget it drops those whose loss costs least: few tokens from the one before to the one behind, and far
    from the end of the prompt, where most requests go on. So they get the sparser the farther they are from there.
    """

    def __init__(self, budget_bytes: int) -> None:
        """The last two and the pinned ones are kept beyond the budget."""
        self._budget_bytes = budget_bytes
        self._at: dict[int, StateSnapshot] = {}
        self._end = self._anchor = 0
        self._pinned: frozenset[int] = frozenset()

    def __getitem__(self, position: int) -> StateSnapshot:
        return self._at[position]

    def __len__(self) -> int:
        return len(self._at)

    @property
    def used_bytes(self) -> int:
        return sum(snapshot.size_bytes for snapshot in self._at.values())

    def deepest(self, length: int) -> int:
        """The deepest position up to `length` with a snapshot; 0 if there is none."""
        return max((position for position in self._at if position <= length), default=0)

    def within(self, length: int) -> Iterator[tuple[int, StateSnapshot]]:
        """The snapshots up to `length`, with their positions; the deepest last."""
        return ((position, self._at[position]) for position in sorted(self._at) if position <= length)

    def lasting(self, length: int) -> Iterator[tuple[int, StateSnapshot]]:
        """The snapshots up to `length` that are worth a place in a store: up to the anchor, and two at the end.

        The last one serves a prompt that goes on, the one before serves the same prompt, whose last token is computed
        again.
        """
        ends = (self.deepest(length), self.deepest(length - 1))
        return ((place, kept) for place, kept in self.within(length) if place in ends or place <= self._anchor)

    def note_prompt(self, end: int, pinned: Collection[int]) -> None:
        """The prompt ends at `end`; what is kept there and at the `pinned` positions is not dropped for room.

        The last of these is the anchor: where the increment begins.
        """
        self._end, self._anchor, self._pinned = end, max(pinned, default=end), frozenset((end, *pinned))

    def put(self, position: int, snapshot: StateSnapshot) -> None:
        """Keep a snapshot; neither it nor the one before, to which a refused draft leads back, is dropped for room."""
        self._at[position] = snapshot
        needed = {position, self.deepest(position - 1), *self._pinned}
        while len(self._at) > MOST_SNAPSHOTS or self.used_bytes > self._budget_bytes:
            loose = [kept for kept in self._at if kept not in needed]
            if not loose:
                return
            del self._at[min(loose, key=self._loss)]

    def drop_beyond(self, length: int) -> None:
        """Drop what follows other tokens than the sequence now has."""
        for position in [position for position in self._at if position > length]:
            del self._at[position]

    def _loss(self, position: int) -> float:
        before = max((other for other in self._at if other < position), default=0)
        behind = min((other for other in self._at if other > position), default=position)
        return (behind - before) / (1 + abs(self._end - position))
