"""The gate: pure rules, in order, that decide when a next edit is asked for and which answers are shown.

A rule returns whether it forbids; the first that does gives the reason. Nothing shown costs the user less than a wrong
edit, so in doubt a rule forbids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from rapidfuzz.distance import Indel, Postfix, Prefix

from lsp_server.documents.documents import Position, changed_ranges
from lsp_server.next_edit.formats import LaidPrompt, NewRegion, shown
from lsp_server.next_edit.history import Event

Trigger = Literal["pause", "acceptance", "jump", "command"]

FRESH_S = 10.0
"""A jump of the cursor asks only within this time after an edit."""

BULK_CHARS, BULK_LINES = 200, 8
FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 5.0, 320.0
MAX_REFUSED = 20
MOST_LINES = 20
FAR_LINES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state of the editor when a next edit may be asked for; times in seconds."""

    trigger: Trigger
    changed: bool = True  # the user has edited the document since it was opened
    since_edit_s: float = 0.0
    undone: bool = False  # the last edit was an undo or redo
    bulk: bool = False  # the last edit was no typing: see `is_bulk`
    rejections: int = 0  # since the last acceptance
    since_rejection_s: float | None = None


AskRule = Callable[[Moment], bool]


def is_bulk(chars: int, lines: int) -> bool:
    """Whether an edit that inserted so much is a paste, a formatter or the like."""
    return chars >= BULK_CHARS or lines >= BULK_LINES


def back_off_s(rejections: int) -> float:
    """How long nothing is asked for after so many rejections in a row."""
    return min(FIRST_BACK_OFF_S * 2.0 ** (min(rejections, 10) - 1), LONGEST_BACK_OFF_S) if rejections else 0.0


def _backs_off(moment: Moment) -> bool:
    since = moment.since_rejection_s
    return since is not None and since < back_off_s(moment.rejections)


ASKING: dict[str, AskRule] = {
    "nothing was edited": lambda moment: not moment.changed,
    "the last edit is too old": lambda moment: moment.trigger == "jump" and moment.since_edit_s > FRESH_S,
    "after undo": lambda moment: moment.undone,
    "after a bulk change": lambda moment: moment.bulk and moment.trigger != "acceptance",
    "after a rejection": _backs_off,
}
"""Why nothing is asked for; a command of the user passes all but the first.

The clients do not ask while a popup is open or ghost text is shown, in a snippet, and where the user selects.
"""


def reason_not_to_ask(moment: Moment) -> str | None:
    """The first rule that forbids to ask."""
    names = list(ASKING)[:1] if moment.trigger == "command" else ASKING
    return next((name for name in names if ASKING[name](moment)), None)


class Hunk(NamedTuple):
    """Lines that differ, without their line ends: `old` at line `first` became `new`."""

    first: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def hunks_of(old: Sequence[str], new: Sequence[str]) -> tuple[Hunk, ...]:
    """The hunks that turn the lines `old` into `new`; where as many come as go, each line is one."""
    hunks: list[Hunk] = []
    for i, j, k, m in changed_ranges(old, new):
        if j - i == m - k:
            hunks += (Hunk(i + n, (old[i + n],), (new[k + n],)) for n in range(j - i))
        else:
            hunks.append(Hunk(i, tuple(old[i:j]), tuple(new[k:m])))
    return tuple(hunks)


@dataclass(frozen=True)
class Proposal:
    """An answer beside what it would change. Lines are those of the region, without their line ends."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    row: int  # the cursor's line, from the region's first
    behind: tuple[str, ...]  # lines of the document below the region
    events: tuple[Event, ...]  # of this document
    refused: tuple[Hunk, ...] = ()  # by the user

    @cached_property
    def hunks(self) -> tuple[Hunk, ...]:
        return hunks_of(self.old, self.new)


def proposal_of(
    lines: Sequence[str],
    prompt: LaidPrompt,
    answer: NewRegion,
    cursor: Position,
    events: Sequence[Event],
    refused: Sequence[Hunk] = (),
) -> Proposal:
    """The proposal that the answer to the prompt makes in the document's lines; `events` are those known now."""
    anchor = prompt.anchor
    behind = shown(lines[anchor.last : anchor.last + MOST_LINES]).split("\n")
    return Proposal(
        old=tuple(prompt.region.split("\n")[:-1]),
        new=tuple(answer.region.split("\n")[:-1]),
        row=cursor.line - anchor.first,
        behind=tuple(behind),
        events=tuple(event for event in events if event.path == anchor.path),
        refused=tuple(refused),
    )


_LAYOUT = str.maketrans("", "", "{};,")
_WORD = re.compile(r"\w+|[^\w\s]")
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "async await break case catch class const continue def delete elif else enum except export extends finally for "
        "from func function if impl import interface let match package private protected public raise return static "
        "struct switch throw trait try type use var while with yield",
    )
)
ShowRule = Callable[[Proposal], bool]


def _squeezed(lines: Sequence[str]) -> str:
    return "".join("".join(lines).split())


def _is_layout(proposal: Proposal) -> bool:
    """Whether only white space and what formatters add or take away differs."""
    old, new = (_squeezed(lines).translate(_LAYOUT) for lines in (proposal.old, proposal.new))
    return old == new


def _cuts_the_end(proposal: Proposal) -> bool:
    """Whether the answer leaves out the region's last lines, as one does that ended too early.

    Its last line is then more like the one that stood at its place than like the region's last one. A last line that
    is only shorter is missing its end where nothing else differs.
    """
    first, old, new = proposal.hunks[-1]
    if first + len(old) < len(proposal.old):
        return False
    if 0 < len(new) < len(old):
        at_place, at_end = (Indel.normalized_similarity(new[-1], line) for line in (old[len(new) - 1], old[-1]))
        return at_place > at_end
    return len(new) < len(old) or (len(proposal.hunks) == 1 and "\n".join(old).startswith("\n".join(new)))


def _reverts(proposal: Proposal) -> bool:
    """Whether a hunk restores whole lines that events changed, one after the other, but for slips."""
    changes = [
        hunk
        for event in proposal.events
        for hunk in hunks_of(shown(event.old).split("\n"), shown(event.new).split("\n"))
        if not _is_slip(hunk)
    ]
    for hunk in proposal.hunks:
        known = {hunk.old}
        for change in reversed(changes):
            if change.new in known:
                known.add(change.old)
        if hunk.new in known:
            return True
    return False


def _is_slip(hunk: Hunk) -> bool:
    """Whether the change spoiled a keyword by letters before or behind it: nobody renames a keyword."""
    old, new = (_WORD.findall("\n".join(lines)) for lines in (hunk.old, hunk.new))
    return len(old) == len(new) and any(
        before in _KEYWORDS and after not in _KEYWORDS and (after.startswith(before) or after.endswith(before))
        for before, after in zip(old, new, strict=True)
    )


def _was_refused(proposal: Proposal) -> bool:
    refused = {(hunk.old, hunk.new) for hunk in proposal.refused}
    return any((hunk.old, hunk.new) in refused for hunk in proposal.hunks)


def _doubles(proposal: Proposal) -> bool:
    """Whether the lines that it inserts stand right beside their place already, wherever a diff has put them."""
    document = (*proposal.old, *proposal.behind)
    for first, old, new in proposal.hunks:
        beside = Postfix.similarity(document[:first], new) + Prefix.similarity(document[first:], new)
        if not old and _squeezed(new) and beside >= len(new):
            return True
    return False


def _is_long(proposal: Proposal) -> bool:
    return sum(max(len(hunk.old), len(hunk.new)) for hunk in proposal.hunks) > MOST_LINES


def _rewrites_above(proposal: Proposal) -> bool:
    above = [hunk for hunk in proposal.hunks if hunk.first + len(hunk.old) <= proposal.row]
    return min(sum(len(hunk.old) for hunk in above), sum(len(hunk.new) for hunk in above)) > FAR_LINES


SHOWING: dict[str, ShowRule] = {
    "no edit": lambda proposal: not proposal.hunks,
    "only layout": _is_layout,
    "the end is missing": _cuts_the_end,
    "takes an edit back": _reverts,
    "was refused": _was_refused,
    "repeats what stands there": _doubles,
    "too long": _is_long,
    "rewrites what is above": _rewrites_above,
}
"""Why an answer is not shown; one that is not in its format is `BadAnswer` before."""


def reason_not_to_show(proposal: Proposal) -> str | None:
    """The first rule that forbids to show the proposal."""
    return next((name for name, forbids in SHOWING.items() if forbids(proposal)), None)


def refuse(refused: Sequence[Hunk], proposal: Proposal) -> tuple[Hunk, ...]:
    """The refused hunks with those of the proposal; they are known again by their text, wherever it moves."""
    return (*refused, *proposal.hunks)[-MAX_REFUSED:]
