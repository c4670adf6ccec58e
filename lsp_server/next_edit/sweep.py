"""The prompts of Sweep's next-edit models: the window before and after the newest change, and its next state.

Sources: form A, PyPI sweep-autocomplete 0.1.1 (next_edit_autocomplete.py) and github.com/sweepai/vscode-nes; form B,
the script of the model card, and github.com/zed-industries/zed, sweep_prompt.rs. They contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lsp_server.documents.documents import Position
from lsp_server.next_edit.formats import (
    BadAnswer,
    LaidPrompt,
    NewRegion,
    checked,
    ended,
    fitting,
    offset_in,
    refuse_marked,
    shown,
    unmarked,
)
from lsp_server.next_edit.history import Event
from lsp_server.next_edit.regions import RegionAnchor, RegionSize, lines_around, reverted
from protocol.messages import FinishReason, Snippet

SEPARATOR, CURSOR = "<|file_sep|>", "<|cursor|>"
_MARKERS = re.compile(r"<\|(?:file_sep|endoftext|cursor|fim_\w+|repo_name|im_start|im_end)\|>")
_FIRST_LINE = re.compile(r"[^\n]*\n+")
_WHOLE_FILE_LINES, _PART_LINES, _STRIDE = 800, 300, 150
_SNIPPET_CHARS = int(2048 * 3.5)

Numbers = Literal["in window", "in file", ""]
Given = Literal["first line", "to cursor", ""]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One form of the prompt.

    `numbers` says what the lines behind a window's path count, `given` how much of the window the prompt holds already
    as the answer's beginning, `diff_paths` whether events bear `PATH.diff` and not their lines.
    """

    name: str
    size: RegionSize
    numbers: Numbers
    given: Given
    max_events: int
    diff_paths: bool
    shows_cursor: bool = True
    shows_file: bool = True  # as it was when editing began
    reverts: bool = True  # the newest event, in the window `original/`
    context_lines: int = 0  # around an event
    max_event_lines: int = 0  # of an event, before and after; 0 means all
    stop_texts: tuple[str, ...] = ("<|endoftext|>", SEPARATOR)
    max_tokens: int = 1024
    history_alone: bool = False

    def anchor(
        self,
        path: str,
        lines: Sequence[str],
        row: int,
        events: Sequence[Event] = (),
        snippets: Sequence[Snippet] = (),
        previous: RegionAnchor | None = None,
        newest: Event | None = None,
    ) -> RegionAnchor:
        """See NextEditFormat."""
        first, last = lines_around(lines, row, self.size)
        start = tuple(lines) if previous is None else previous.session_start
        begin, end = _part(len(start), first)
        refuse_marked(_MARKERS, path, *lines[first:last], *(start[begin:end] if self.shows_file else ()))
        events, snippets = unmarked(_MARKERS, events, snippets)
        region = tuple(lines[first:last])
        return RegionAnchor(
            path=path,
            first=first,
            last=last,
            above=tuple(lines[max(0, first - 1) : first]),
            below=tuple(lines[last : last + 1]),
            laid_lines=last - first,
            original=reverted(region, first, path, newest) if self.reverts else region,
            session_start=start,
            events=tuple(events)[-self.max_events :],
            snippets=tuple(fitting(snippets, lambda snippet: len(snippet.text), _SNIPPET_CHARS)),
        )

    def keeps(self, anchor: RegionAnchor, lines: Sequence[str], row: int) -> bool:
        """See NextEditFormat. The window moves with the cursor's line."""
        return anchor.fits(lines) and (anchor.first, anchor.last) == lines_around(lines, row, self.size)

    def lay(self, anchor: RegionAnchor, lines: Sequence[str], cursor: Position) -> LaidPrompt:
        """See NextEditFormat."""
        region = ended(shown(lines[anchor.first : anchor.last]))
        refuse_marked(_MARKERS, region)
        at = offset_in(lines, anchor.first, cursor)
        given = ""
        if self.given == "to cursor":
            given = region[: region.rfind("\n", 0, at) + 1]
        elif self.given and (first_line := _FIRST_LINE.match(region)):
            given = first_line.group()
        path = anchor.path + self._numbers(anchor, cursor)
        current = region[:at] + CURSOR + region[at:] if self.shows_cursor else region
        parts = [""]
        for text in (
            *self._files(anchor),
            *map(self._event, anchor.events),
            f"original/{path}\n{ended(shown(anchor.original))}",
            f"current/{path}\n{current}",
            f"updated/{path}\n{given}",
        ):
            parts += SEPARATOR, text
        return LaidPrompt(tuple(parts), anchor, region, region[len(given) :], given)

    def read(self, prompt: LaidPrompt, answer: str, finish_reason: FinishReason) -> NewRegion:
        """See NextEditFormat."""
        for end in self.stop_texts:
            answer = answer.removesuffix(end)
        text = checked(answer, _MARKERS, finish_reason)
        if not text.strip() and prompt.draft.strip():
            raise BadAnswer("the answer is empty")
        return NewRegion(ended(prompt.given + text))

    def _numbers(self, anchor: RegionAnchor, cursor: Position) -> str:
        if self.numbers == "in file":
            return f":{anchor.first + 1}:{anchor.last}"
        if self.numbers:  # as the package counts: from the cursor's line in the window
            line = cursor.line - anchor.first + 1
            return f":{line}:{line + anchor.last - anchor.first}"
        return ""

    def _files(self, anchor: RegionAnchor) -> Iterator[str]:
        for snippet in anchor.snippets:
            yield f"{snippet.path}\n{ended(snippet.text)}"
        if self.shows_file:
            begin, end = _part(len(anchor.session_start), anchor.first)
            yield f"{anchor.path}\n{ended(shown(anchor.session_start[begin:end]))}"

    def _event(self, event: Event) -> str:
        count = self.context_lines
        above, below = event.above[len(event.above) - count :] if count else (), event.below[:count]
        sides = ((*above, *side, *below)[: self.max_event_lines or None] for side in (event.old, event.new))
        old, new = (ended(shown(side)) if side else "" for side in sides)
        first = event.first - len(above)
        where = ".diff" if self.diff_paths else f":{first + 1}:{first + len((*above, *event.new, *below))}"
        return f"{event.path}{where}\noriginal:\n{old}updated:\n{new}"


def _part(count: int, line: int) -> tuple[int, int]:
    """The lines of a file that are shown: all, or of a long file those of the stride in whose middle the line lies."""
    if count <= _WHOLE_FILE_LINES:
        return 0, count
    first = min(max(0, line - _STRIDE // 2) // _STRIDE * _STRIDE, count - _PART_LINES)
    return first, first + _PART_LINES


SWEEP_A = Sweep(
    name="sweep-a",
    size=RegionSize(lines_above=2, lines_below=5),
    numbers="in window",
    given="first line",
    max_events=6,
    diff_paths=False,
    context_lines=1,
)
SWEEP_B = Sweep(
    name="sweep-b",
    size=RegionSize(lines_above=10, lines_below=10),
    numbers="",
    given="",
    max_events=3,
    diff_paths=True,
    shows_cursor=False,
    shows_file=False,
    max_event_lines=40,
)
