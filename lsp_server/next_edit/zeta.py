"""The prompts of Zed's models Zeta 2 and Zeta 2.1: a Seed-Coder prompt, suffix first, whose middle is the region's new
text, or blocks of it.

Source: github.com/zed-industries/zed, crates/zeta_prompt, formats V0211SeedCoder and V0318SeedMultiRegions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lsp_server.documents.documents import Position, split_lines
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
from lsp_server.next_edit.history import Event, diff
from lsp_server.next_edit.regions import RegionAnchor, RegionSize, context_of, lines_around
from protocol.messages import FinishReason, Snippet

BYTES_PER_TOKEN = 3
PROMPT_BYTES = int(4096 * 0.9) * BYTES_PER_TOKEN
SIZE = RegionSize(region_bytes=350 * BYTES_PER_TOKEN, context_bytes=150 * BYTES_PER_TOKEN)

SUFFIX, PREFIX, MIDDLE = "<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>"
FILE, CURSOR = "<filename>", "<|user_cursor|>"
CURRENT, SEPARATOR, UPDATED = "<<<<<<< CURRENT\n", "=======\n", ">>>>>>> UPDATED"
NO_EDITS = "NO_EDITS"
ACCEPTED = "// User accepted prediction:\n"
END = "<[end▁of▁sentence]>"
_TAG = re.compile(r"<\|marker_([0-9]{1,6})\|>")
_MARKERS = re.compile(
    r"<\[fim-\w+\]>|<\[(?:begin|end)▁of▁sentence\]>|<filename>|<\|user_cursor\|>|<\|marker_\d+\|>"
    r"|<<<<<<< CURRENT|>>>>>>> UPDATED|^=======$",
    re.MULTILINE,
)
_MARKERS_OF_ANSWER = re.compile(
    _MARKERS.pattern.replace(r"|<\|user_cursor\|>", "").replace(r"|<\|marker_\d+\|>", ""), re.MULTILINE
)

# Where a block may begin, in lines.
_LEAST_BLOCK, _LONGEST_BLOCK, _MOST_MOVED = 6, 16, 4
_NO_BEGINNING = re.compile(r"\s*(?:$|[}\])]|(?:break|continue|return|throw|end);?\s*$)")


@dataclass(frozen=True, slots=True)
class Zeta:
    """Zeta 2: the answer is the whole region's new text. `size` and `prompt_bytes` as Zed has them."""

    name: str = "zeta-2"
    size: RegionSize = SIZE
    prompt_bytes: int = PROMPT_BYTES
    stop_texts: tuple[str, ...] = (UPDATED,)
    max_tokens: int = 1024
    history_alone: bool = True

    def anchor(
        self,
        path: str,
        lines: Sequence[str],
        row: int,
        events: Sequence[Event] = (),
        snippets: Sequence[Snippet] = (),
        previous: RegionAnchor | None = None,
        newest: Event | None = None,  # noqa: ARG002 - the region is shown as it is
    ) -> RegionAnchor:
        """See NextEditFormat. The newest events come first to the budget, then the snippets in their order."""
        if previous is not None and previous.holds(lines, row):
            first, last, laid_lines = previous.first, previous.last, previous.laid_lines
        else:
            first, last = lines_around(lines, row, self.size)
            laid_lines = last - first
        above, below = context_of(lines, first, last, self.size)
        window = shown((*above, *lines[first:last], *below))
        refuse_marked(_MARKERS, path, window)
        events, snippets = unmarked(_MARKERS, events, snippets)
        room = self.prompt_bytes - _bytes(window)
        newest_first = fitting(reversed(events), lambda event: _bytes(_event(event)), room)
        room -= sum(_bytes(_event(event)) for event in newest_first)
        return RegionAnchor(
            path=path,
            first=first,
            last=last,
            above=above,
            below=below,
            laid_lines=laid_lines,
            cuts=self._cuts(lines[first:last]),
            events=tuple(newest_first[::-1]),
            snippets=tuple(fitting(snippets, lambda snippet: _bytes(_file(snippet)), room)),
        )

    def keeps(self, anchor: RegionAnchor, lines: Sequence[str], row: int) -> bool:
        """See NextEditFormat."""
        return anchor.holds(lines, row)

    def lay(self, anchor: RegionAnchor, lines: Sequence[str], cursor: Position) -> LaidPrompt:
        """See NextEditFormat."""
        region = ended(shown(lines[anchor.first : anchor.last]))
        refuse_marked(_MARKERS, region)
        files = "".join(map(_file, anchor.snippets))
        history = "".join(map(_event, anchor.events))
        head = (f"{files}\n" if files else "") + (f"{FILE}edit_history\n{history}\n" if history else "")
        head += f"{FILE}{anchor.path}\n{shown(anchor.above)}"
        at = offset_in(lines, anchor.first, cursor)
        marked = self._marked(anchor, region[:at] + CURSOR + region[at:])
        parts = ("", SUFFIX, ended(shown(anchor.below)), PREFIX, head + marked, MIDDLE, "")
        return LaidPrompt(parts, anchor, region, self._draft(anchor, region))

    def read(self, prompt: LaidPrompt, answer: str, finish_reason: FinishReason) -> NewRegion:
        """See NextEditFormat. The answer may still have its end."""
        text = checked(answer.partition(UPDATED)[0].removesuffix(END), _MARKERS_OF_ANSWER, finish_reason)
        if _TAG.search(text):
            raise BadAnswer("the answer holds a tag of a block")
        if text.strip() == NO_EDITS:
            return NewRegion(prompt.region)
        if not text:
            raise BadAnswer("the answer is empty")
        return _with_cursor(ended(text))

    def _cuts(self, _: Sequence[str]) -> tuple[int, ...]:
        return ()

    def _marked(self, _: RegionAnchor, region: str) -> str:
        return f"{CURRENT}{region}{SEPARATOR}"

    def _draft(self, _: RegionAnchor, region: str) -> str:
        return region + UPDATED


@dataclass(frozen=True, slots=True)
class TaggedZeta(Zeta):
    """Zeta 2.1: tags stand between the region's blocks, and the answer is the new text from one tag to another."""

    name: str = "zeta-2.1"
    stop_texts: tuple[str, ...] = (END,)

    def read(self, prompt: LaidPrompt, answer: str, finish_reason: FinishReason) -> NewRegion:
        """See NextEditFormat. The same tag first and last means no edit."""
        text = checked(answer.partition(END)[0], _MARKERS_OF_ANSWER, finish_reason)
        tags = list(_TAG.finditer(text))
        if len(tags) < 2:
            raise BadAnswer(f"the answer has {len(tags)} tags, and not a first and a last one")
        if text[: tags[0].start()].strip() or text[tags[-1].end() :].strip():
            raise BadAnswer("the answer has text outside of its tags")
        lines = split_lines(prompt.region)[:-1]  # the last one, behind the region's last line feed, is empty
        places = (0, *prompt.anchor.cuts, len(lines))
        first, last = int(tags[0][1]), int(tags[-1][1])
        if not 1 <= first <= last <= len(places) or not all(1 <= int(tag[1]) <= len(places) for tag in tags):
            raise BadAnswer(f"the answer goes from tag {first} to tag {last} of {len(places)}")
        if first == last:
            return NewRegion(prompt.region)
        new = _TAG.sub("", text[tags[0].end() : tags[-1].start()])
        above, below = "".join(lines[: places[first - 1]]), "".join(lines[places[last - 1] :])
        return _with_cursor(above + (ended(new) if new else "") + below)

    def _cuts(self, region: Sequence[str]) -> tuple[int, ...]:
        return tuple(_beginnings_of_blocks(region))

    def _marked(self, anchor: RegionAnchor, region: str) -> str:
        return f"{self._draft(anchor, region)}\n"

    def _draft(self, anchor: RegionAnchor, region: str) -> str:
        lines = region.split("\n")
        places = (0, *anchor.cuts, len(lines) - 1)
        blocks = ("".join(f"{line}\n" for line in lines[begin:end]) for begin, end in pairwise(places))
        tagged = "".join(f"<|marker_{number}|>{block}" for number, block in enumerate(blocks, start=1))
        return f"{tagged}<|marker_{len(places)}|>"


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _file(snippet: Snippet) -> str:
    return f"{FILE}{snippet.path}\n{ended(snippet.text)}"


def _event(event: Event) -> str:
    note = ACCEPTED if event.accepted else ""
    return f"{note}--- a/{event.path}\n+++ b/{event.path}\n{diff(event)}"


def _with_cursor(text: str) -> NewRegion:
    before, mark, behind = text.partition(CURSOR)
    return NewRegion(before + behind.replace(CURSOR, ""), len(before) if mark else None)


def _beginnings_of_blocks(region: Sequence[str]) -> Iterator[int]:
    """The lines of the region where its blocks begin, but for the first."""
    last, count = 0, len(region)
    for line in range(1, count):
        gap = line - last
        after_blank = bool(region[line].strip()) and not region[line - 1].strip()
        if gap >= _LONGEST_BLOCK or (after_blank and gap >= _LEAST_BLOCK and count - line >= _LEAST_BLOCK):
            below = range(line, min(line + _MOST_MOVED + 1, count))
            last = next((place for place in below if not _NO_BEGINNING.match(region[place])), line)
            yield last


ZETA_2 = Zeta()
ZETA_2_1 = TaggedZeta()
