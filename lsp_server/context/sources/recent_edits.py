"""The source `edits`: what the user changed in other documents a moment ago, as short diffs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice

from rapidfuzz.distance import Postfix, Prefix

from lsp_server.context.proposals import EditedText, Place, TextProposal, rank
from lsp_server.editing.documents import Document

_KEEP_S = 900.0  # after so long an edit is not recent
_MOST_LINES = 400  # between the first change of a document and the last: more is no edit by hand
_MOST_HUNK_LINES = 16
_MOST_HUNKS = 3  # of a document
_MAX_PROPOSALS = 6
_MAX_DOCUMENTS = 64


@dataclass(slots=True)
class _Baseline:
    document: Document
    lines: list[str]
    taken: float


class Baselines:
    """The lines of each document as they were some minutes ago, to compare with; a copy of a list per document."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._baselines: dict[str, _Baseline] = {}

    def viewed(self, document: Document) -> None:
        """Compare with the document's present lines from now on, if there are none yet, or old ones."""
        known = self._baselines.get(document.uri)
        if known is None or known.document is not document or self._now() - known.taken > _KEEP_S:
            self._baselines.pop(document.uri, None)
            self._baselines[document.uri] = _Baseline(document, list(document.lines), self._now())
        while len(self._baselines) > _MAX_DOCUMENTS:
            del self._baselines[next(iter(self._baselines))]

    def closed(self, uri: str) -> None:
        self._baselines.pop(uri, None)

    def edited(self, document: Document) -> EditedText | None:
        """What has changed since; None if nothing has, or more than a user types."""
        known = self._baselines.get(document.uri)
        if known is None or known.document is not document:
            return None
        old, new = known.lines, document.lines
        first = Prefix.similarity(old, new)
        behind = Postfix.similarity(old[first:], new[first:])
        changed = old[first : len(old) - behind], new[first : len(new) - behind]
        if not any(changed) or max(map(len, changed)) > _MOST_LINES:
            return None
        above = new[first - 1] if first > 0 else ""
        return EditedText(document.uri, first, tuple(changed[0]), tuple(changed[1]), above)


class RecentEdits:
    """Cuts the differences of edited documents into diffs, the most recently used documents' first."""

    def propose(self, place: Place) -> Sequence[TextProposal]:
        """At most three diffs of a document, of at most 16 lines each."""
        hunks = (hunk for edited in place.edited for hunk in islice(_hunks(edited), _MOST_HUNKS))
        return [
            TextProposal(edited.uri, "edits", rank("edits", 1.0, number), first, held, shown)
            for number, (edited, first, held, shown) in enumerate(islice(hunks, _MAX_PROPOSALS))
        ]


def _hunks(edited: EditedText) -> Iterator[tuple[EditedText, int, tuple[str, ...], str]]:
    """Each change with the line above it: where it stands, the lines by which it is found again, and its diff."""
    matcher = SequenceMatcher(None, edited.old, edited.new, autojunk=False)
    for kind, old_first, old_stop, new_first, new_stop in matcher.get_opcodes():
        old, new = edited.old[old_first:old_stop], edited.new[new_first:new_stop]
        if kind == "equal" or len(old) + len(new) > _MOST_HUNK_LINES or not "".join((*old, *new)).strip():
            continue
        above = edited.new[new_first - 1] if new_first > 0 else edited.above
        held = (above, *new) if above else new
        marked = (*((" ", above),) * bool(above), *(("-", line) for line in old), *(("+", line) for line in new))
        shown = "".join(mark + line.rstrip("\r\n") + "\n" for mark, line in marked)
        yield edited, edited.first + new_first - bool(above), held, shown
