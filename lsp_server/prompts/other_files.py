"""Chooses the snippets of other open documents that stand before a prefix, and their order.

A change before the prefix costs the prefill of everything behind it. A snippet once chosen for a document
therefore keeps its place and its text as long as possible, and new snippets are appended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from lsp_server.editing.documents import Document, LineChange
from lsp_server.prompts.snippets import CutSnippet, DocumentVisits, Visit, cut, find_again
from protocol.messages import Snippet

_Value = TypeVar("_Value")

_MAX_DOCUMENTS = 64
_MAX_SELECTIONS = 32
# A snippet gives way to more recent visits only when its rank is this many times the number that fits.
_LAG = 2
# The budget has room for at least so many snippets.
_MIN_CHUNKS = 2

_FAMILIES = (
    frozenset({"javascript", "javascriptreact", "svelte", "typescript", "typescriptreact", "vue"}),
    frozenset({"css", "html", "less", "sass", "scss", "svelte", "vue"}),
    frozenset({"c", "cpp", "cuda-cpp", "objective-c", "objective-cpp"}),
    frozenset({"groovy", "java", "kotlin", "scala"}),
    frozenset({"csharp", "fsharp", "vb"}),
)


@dataclass(frozen=True, slots=True)
class Context:
    """Snippets in the order of the prompt, and the URIs of their documents."""

    snippets: tuple[Snippet, ...] = ()
    sources: frozenset[str] = frozenset()


class _Candidate(NamedTuple):
    document: Document
    visit: Visit

    def is_in(self, snippet: CutSnippet) -> bool:
        return snippet.uri == self.document.uri and self.visit.line in snippet.span


class ContextRing:
    """Remembers where the user was in each open document, and chooses snippets for a prompt.

    `is_excluded` says whether the document of a URI is excluded; `path_of` gives its path for the prompt. A keystroke
    costs a few list operations; only `context_for` reads text.
    """

    def __init__(self, is_excluded: Callable[[str], bool], path_of: Callable[[str], str]) -> None:
        self._is_excluded = is_excluded
        self._path_of = path_of
        self._sequence = 0
        self._documents: dict[str, DocumentVisits] = {}  # most recently used last
        self._selections: dict[str, tuple[CutSnippet, ...]] = {}  # likewise

    @property
    def uris(self) -> Sequence[str]:
        """The documents that snippets may be taken from."""
        return list(self._documents)

    def visited(self, document: Document, line: int) -> None:
        """Record that the cursor is in this line."""
        self._used(document).touch(line, self._sequence)

    def edited(self, document: Document, change: LineChange) -> None:
        """Follow an edit that was applied to the document."""
        self._used(document).edited(change, self._sequence)

    def closed(self, uri: str) -> None:
        """Drop a document that was closed or excluded, and all text from it."""
        self._documents.pop(uri, None)
        for target, selection in self._selections.items():
            self._selections[target] = tuple(snippet for snippet in selection if snippet.uri != uri)

    def context_for(self, uri: str, language_id: str, budget_chars: int) -> Context:
        """The snippets for a prompt of `uri`; paths and text have at most `budget_chars` code points."""
        kept = self._still_good(self._selections.pop(uri, ()), budget_chars)
        selection = self._complete(kept, self._candidates(uri, language_id), budget_chars)
        self._selections[uri] = selection
        _drop_oldest(self._selections, _MAX_SELECTIONS)
        return Context(tuple(chosen.snippet for chosen in selection), frozenset(chosen.uri for chosen in selection))

    def _used(self, document: Document) -> DocumentVisits:
        self._sequence += 1
        visits = self._documents.pop(document.uri, None)
        if visits is None or visits.document is not document:
            visits = DocumentVisits(document)
        self._documents[document.uri] = visits
        _drop_oldest(self._documents, _MAX_DOCUMENTS)
        return visits

    def _still_good(self, selection: Sequence[CutSnippet], budget_chars: int) -> list[CutSnippet]:
        """The snippets whose documents are open, not excluded and still contain them, within the budget."""
        kept: list[CutSnippet] = []
        for snippet in selection:
            source = self._documents.get(snippet.uri)
            if source is None or self._is_excluded(snippet.uri):
                continue
            found = find_again(snippet, source.document)
            if found is None or any(_overlap(found, other) for other in kept):
                continue
            budget_chars -= found.chars
            if budget_chars < 0:
                break
            kept.append(found)
        return kept

    def _candidates(self, uri: str, language_id: str) -> list[_Candidate]:
        """The visits to all other documents, related languages first, then by recency."""
        candidates = [
            _Candidate(visits.document, visit)
            for visits in self._documents.values()
            if visits.document.uri != uri
            for visit in visits.visits
        ]
        candidates.sort(key=lambda each: (not _related(each.document.language_id, language_id), -each.visit.touched))
        return candidates

    def _complete(
        self, kept: list[CutSnippet], candidates: Sequence[_Candidate], budget_chars: int
    ) -> tuple[CutSnippet, ...]:
        """The kept snippets and new ones behind them, the one touched last at the very end."""
        added, crowded_out = self._fill(kept, candidates, budget_chars)
        furthest = _LAG * (len(kept) + len(added))
        if crowded_out is not None and crowded_out < furthest:
            leading = [snippet for snippet in kept if any(each.is_in(snippet) for each in candidates[:furthest])]
            if len(leading) < len(kept):
                kept = leading
                added, _ = self._fill(kept, candidates, budget_chars)
        return (*kept, *reversed(added))

    def _fill(
        self, kept: Sequence[CutSnippet], candidates: Sequence[_Candidate], budget_chars: int
    ) -> tuple[list[CutSnippet], int | None]:
        """New snippets, best first, until one does not fit; and the index of its candidate, None if all fit."""
        added: list[CutSnippet] = []
        room = budget_chars - sum(snippet.chars for snippet in kept)
        for index, candidate in enumerate(candidates):
            chosen = [*kept, *added]
            uri = candidate.document.uri
            if any(candidate.is_in(snippet) for snippet in chosen) or self._is_excluded(uri):
                continue
            taken = [snippet.span for snippet in chosen if snippet.uri == uri]
            path, max_chars = self._path_of(uri), budget_chars // _MIN_CHUNKS
            snippet = cut(candidate.document, candidate.visit.line, path, max_chars, taken)
            if snippet is None or any(snippet.snippet.text == other.snippet.text for other in chosen):
                continue
            if snippet.chars > room:
                return added, index
            room -= snippet.chars
            added.append(snippet)
        return added, None


def _related(language_id: str, other: str) -> bool:
    return language_id == other or any(language_id in family and other in family for family in _FAMILIES)


def _overlap(snippet: CutSnippet, other: CutSnippet) -> bool:
    return snippet.uri == other.uri and snippet.first < other.span.stop and other.first < snippet.span.stop


def _drop_oldest(mapping: dict[str, _Value], limit: int) -> None:
    while len(mapping) > limit:
        del mapping[next(iter(mapping))]
