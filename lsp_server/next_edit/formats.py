"""Common to all families of next-edit models: when a prompt is laid anew, the answer read from it, and its edit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeVar

from lsp_server.documents.documents import Edit, Position, Replacement, end_of, split_lines, trimmed
from lsp_server.next_edit.history import Event, History, plain
from lsp_server.next_edit.regions import RegionAnchor
from protocol.errors import BadInput
from protocol.messages import FinishReason, Snippet

Item = TypeVar("Item")


class BadAnswer(ValueError):
    """A model's answer is not one of its format, or was cut; says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class LaidPrompt:
    """A prompt for a next-edit model.

    `parts` are texts and marker tokens in turn, a text first: each text is tokenized as it is. `given` is the beginning
    of the answer, which the prompt holds already; `draft` is the answer that would change nothing, behind `given`.
    """

    parts: tuple[str, ...]
    anchor: RegionAnchor
    region: str  # as the prompt shows it, without the cursor: with \n as line ends, and one at its end
    draft: str
    given: str = ""

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class NewRegion:
    """The region's new text, and the offset of the new cursor in it, if the model says one."""

    region: str
    cursor: int | None = None


class NextEditFormat(Protocol):
    """How a family's prompts are laid and its answers read."""

    @property
    def name(self) -> str: ...

    @property
    def stop_texts(self) -> tuple[str, ...]: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def history_alone(self) -> bool:
        """Whether the prompt tells of a change in its history alone, and its region only shows what came of it."""
        ...

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
        """What a prompt shows around the region, with the previous anchor's region if it still holds.

        `newest` is the event that the prompt shows as a change of the region, where a format does so.

        Raises BadInput, naming the marker, if the document holds one of the format's markers.
        """
        ...

    def keeps(self, anchor: RegionAnchor, lines: Sequence[str], row: int) -> bool:
        """Whether a prompt for the cursor's line may be laid with the anchor."""
        ...

    def lay(self, anchor: RegionAnchor, lines: Sequence[str], cursor: Position) -> LaidPrompt:
        """The prompt for the document's present lines; the anchor must fit them.

        Raises BadInput as `anchor` does.
        """
        ...

    def read(self, prompt: LaidPrompt, answer: str, finish_reason: FinishReason) -> NewRegion:
        """The edit of the model's answer; BadAnswer if it says nothing in this format."""
        ...


def refuse_marked(markers: re.Pattern[str], *texts: str) -> None:
    """Raise BadInput if a text holds a marker, which would end the region or the prompt."""
    for text in texts:
        if found := markers.search(text):
            raise BadInput(f"the document holds {found.group().strip()!r}, a marker of next-edit prompts")


def unmarked(
    markers: re.Pattern[str], events: Sequence[Event], snippets: Sequence[Snippet]
) -> tuple[tuple[Event, ...], tuple[Snippet, ...]]:
    """The events and snippets without a marker in them: a prompt does without the others."""
    return (
        tuple(e for e in events if not markers.search("".join((e.path, *e.above, *e.old, *e.new, *e.below)))),
        tuple(s for s in snippets if not markers.search(f"{s.path}\n{s.text}")),
    )


def fitting(items: Iterable[Item], size: Callable[[Item], int], room: int) -> list[Item]:
    """The items up to the first for which there is no room."""
    sizes = accumulate(map(size, items := list(items)))
    return [item for item, total in zip(items, sizes, strict=True) if total <= room]


def shown(lines: Sequence[str]) -> str:
    """The lines as a prompt shows them: with \\n as line ends."""
    return "".join(plain(line) + "\n" if line.endswith(("\n", "\r")) else line for line in lines)


def ended(text: str) -> str:
    """The text with a line feed at its end."""
    return text if text.endswith("\n") else text + "\n"


def offset_in(lines: Sequence[str], first: int, cursor: Position) -> int:
    """The cursor's offset in `shown(lines[first:])`."""
    return len(shown(lines[first : cursor.line])) + cursor.column


def checked(answer: str, markers: re.Pattern[str], finish_reason: FinishReason) -> str:
    """The answer; BadAnswer if it was cut, or holds a marker."""
    if finish_reason in ("length", "cancelled"):
        raise BadAnswer("the answer was cut")
    if found := markers.search(answer):
        raise BadAnswer(f"the answer holds {found.group().strip()!r}")
    return answer


def edit_of(lines: Sequence[str], prompt: LaidPrompt, answer: NewRegion) -> Replacement | None:
    """The one edit that makes the region what the answer says; None if it is that already.

    Lines that the answer repeats keep their line ends, and new ones get the document's.
    """
    first, last = prompt.anchor.first, prompt.anchor.last
    old, text = lines[first:last], ended(answer.region)
    if not shown(old).endswith("\n"):
        text = text[:-1]  # the document's last line has no end: the prompt showed one all the same
    new = split_lines(text)
    if last < len(lines):
        new.pop()  # the empty one behind the last line feed
    head = _equal(old, new)
    tail = _equal(old[head:][::-1], new[head:][::-1])
    replaced, inserted = old[head : len(old) - tail], new[head : len(new) - tail]
    if not replaced and not inserted:
        return None
    line_end = next((line[len(plain(line)) :] for line in old if line != plain(line)), "\n")
    start, replaced_text = Position(first + head, 0), "".join(replaced)
    inserted_text = "".join(inserted).replace("\n", line_end)
    return trimmed(Replacement(Edit(start, end_of(start, replaced_text), inserted_text), replaced_text))


def _equal(old: Sequence[str], new: Sequence[str]) -> int:
    """How many first lines are the same, but for their line ends."""
    most = min(len(old), len(new))
    return next((i for i in range(most) if shown(old[i : i + 1]) != new[i]), most)


def next_anchor(
    layout: NextEditFormat,
    path: str,
    lines: Sequence[str],
    row: int,
    history: History,
    snippets: Sequence[Snippet],
    previous: RegionAnchor | None,
    *,
    at_rest: bool,
) -> RegionAnchor:
    """The anchor for the cursor's line; `previous` has followed all edits since it was laid.

    Between two rests the events stay those of the last one, so that each key changes the prompt only from its place
    in the region on; what was typed since then is missing from the history, and the region shows it. A region that
    does not hold is laid anew with them, or with all events where the history alone tells of a change.

    Raises BadInput, naming the marker, if the document holds one of the format's markers.
    """
    if previous is None or previous.path != path or at_rest:
        return layout.anchor(path, lines, row, history.events, snippets, previous, history.newest)
    if layout.keeps(previous, lines, row):
        return previous
    if layout.history_alone:
        return layout.anchor(path, lines, row, history.events, snippets, previous, history.newest)
    return layout.anchor(path, lines, row, previous.events, previous.snippets, previous, history.newest)
