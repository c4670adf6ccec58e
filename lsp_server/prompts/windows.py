"""The windows of a document around the cursor: their sizes, and where the prefix window begins."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lsp_server.editing.documents import Document, LineChange

# A window that must move is laid with this share of its budget, so that it moves rarely and in large steps.
_KEEP = 0.6
# An edge that leaves the window smaller than this share of its budget is not used again.
_MIN_FILL = 0.3
_MAX_EDGES = 32
# The estimate of characters per token changes only when it is off by more than this: each change moves window
# ends, and a moved end costs a prefill.
_TOLERANCE = 0.15
# Above any tokenizer's average on code or prose. A core whose context is smaller than the windows cuts prompts and
# counts the remaining tokens: without this limit the windows would grow, and the next count be further off.
_MOST_CHARS_PER_TOKEN = 6.4


@dataclass(frozen=True, slots=True)
class WindowBudget:
    """The sizes of the windows in tokens, and the estimate that turns them into code points."""

    prefix_tokens: int = 2048
    suffix_tokens: int = 1024
    increment_tokens: int = 512
    chars_per_token: float = 3.2

    @property
    def prefix_chars(self) -> int:
        return int(self.prefix_tokens * self.chars_per_token)

    @property
    def suffix_chars(self) -> int:
        return int(self.suffix_tokens * self.chars_per_token)

    @property
    def increment_chars(self) -> int:
        return int(self.increment_tokens * self.chars_per_token)

    def observe(self, chars: int, tokens: int) -> WindowBudget:
        """The budget after a prompt of `chars` code points was found to have `tokens` tokens."""
        if tokens < 200:
            return self  # too few for an estimate
        measured = min(chars / tokens, _MOST_CHARS_PER_TOKEN)
        if abs(measured - self.chars_per_token) <= _TOLERANCE * self.chars_per_token:
            return self
        return replace(self, chars_per_token=measured)


class StickyEdges:
    """The lines where prefix windows of one document begin, most recently used first.

    An edge serves every line below it whose window it still fits, so that prompts laid there begin with the
    same tokens; it moves with the text when lines above it are inserted or deleted.
    """

    def __init__(self) -> None:
        self._edges: list[int] = []

    def edited(self, change: LineChange) -> None:
        first, removed, added = change
        moved = (
            edge if edge <= first else edge + added - removed if edge >= first + removed else first
            for edge in self._edges
        )
        self._edges = list(dict.fromkeys(moved))

    def start_for(self, document: Document, line: int, budget_chars: int) -> int:
        """The line where the prefix window that ends before `line` begins, at most `budget_chars` above it."""
        lowest, comfortable, enough = line, line, line
        chars = 0
        while lowest > 0 and chars + len(document.lines[lowest - 1]) <= budget_chars:
            lowest -= 1
            chars += len(document.lines[lowest])
            if chars <= _KEEP * budget_chars:
                comfortable = lowest
            if chars <= _MIN_FILL * budget_chars:
                enough = lowest
        edge = next((edge for edge in self._edges if lowest <= edge <= enough), 0 if lowest == 0 else comfortable)
        self._edges = [edge, *(other for other in self._edges if other != edge)][:_MAX_EDGES]
        return edge


def suffix_stop(document: Document, line: int, budget_chars: int) -> int:
    """The line before which a suffix window ends that begins at `line`, within `budget_chars`."""
    chars = 0
    while line < len(document.lines) and chars + len(document.lines[line]) <= budget_chars:
        chars += len(document.lines[line])
        line += 1
    return line
