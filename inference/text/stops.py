"""Finds where a completion ends by its text.

It ends at the newline, at the dedent of a block, before a stop text, or where it goes on as the suffix does.
"""

from __future__ import annotations

from inference.text.rejoining import Suffix, begun
from protocol.messages import FinishReason, StopRule
from protocol.stopping import find_stop


class Stops:
    """Finds the end of one completion while its text grows."""

    def __init__(self, rule: StopRule, texts: tuple[str, ...] = (), suffix: str = "") -> None:
        """`texts` are not empty; the completion ends before the first of them, and where `suffix` begins."""
        self._rule = rule
        self._suffix = Suffix(suffix)
        self._texts = texts + self._suffix.stop_texts
        self._resume_at = 0
        self._searched = 0

    def find(self, text: str) -> int | None:
        """The end of the completion `text`, which begins with that of the last call; None if it may continue."""
        ruled, self._resume_at = find_stop(text, self._rule, self._resume_at)
        found = [text.find(stop, max(0, self._searched - len(stop) + 1)) for stop in self._texts]
        self._searched = len(text)
        end = min((place for place in found if place >= 0), default=None)
        if ruled is None or (end is not None and end <= ruled):
            return end
        return self._suffix.end(text[:ruled], by_itself=False)

    def last(self, text: str, reason: FinishReason) -> tuple[str, FinishReason]:
        """A `text` that goes on no more, up to the suffix, and why it ends: `reason` if it has not reached that."""
        ruled, _ = find_stop(text, self._rule, final=True)
        if ruled is not None and ruled < len(text):
            text, reason = text[:ruled], "stop"
        end = self._suffix.end(text, by_itself=reason == "eos")
        return (text, reason) if end == len(text) else (text[:end], "stop")

    def settled(self, text: str) -> int:
        """Number of leading characters of a `text` that may continue which no continuation can take away."""
        kept = text.rstrip() if self._rule.indent else text
        if self._rule.closers:  # whether the last line closes the block, and how far, is known at its end
            kept = kept[: max(0, kept.rfind("\n"))].rstrip()
        return min([self._suffix.settled(kept), *(len(text) - begun(stop, text) for stop in self._texts)])
