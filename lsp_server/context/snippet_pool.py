"""Chooses the snippets of other files that stand before a prefix, and their order.

A change before the prefix costs the prefill of everything behind it. A snippet once chosen for a document
therefore keeps its place and its text as long as possible, and new snippets are appended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from lsp_server.context.document_sources import Baselines
from lsp_server.context.proposals import STABLE_FIRST, CutSnippet, EditedText, TextProposal, find_again
from lsp_server.documents.documents import Document
from protocol.messages import Snippet
from protocol.settings import ContextSource

_Value = TypeVar("_Value")

_MAX_DOCUMENTS = 64
_MAX_SELECTIONS = 32
# A snippet gives way to better proposals only when its rank is this many times the number that fits.
_LAG = 2
# The budget has room for at least so many snippets.
_MIN_CHUNKS = 2


@dataclass(frozen=True, slots=True)
class Context:
    """Snippets in the order of the prompt, the URIs of their documents, and the source of each."""

    snippets: tuple[Snippet, ...] = ()
    sources: frozenset[str] = frozenset()
    origins: tuple[ContextSource, ...] = ()


class OpenText(NamedTuple):
    """An open document, and the line in it where the user was last."""

    document: Document
    line: int


class SnippetPool:
    """Remembers where the user was and what sources propose, and chooses the snippets of a prompt.

    `is_excluded` says whether the document of a URI is excluded; `path_of` gives its path for the prompt. A keystroke
    costs a few list operations; only `context_for` reads text.
    """

    def __init__(self, is_excluded: Callable[[str], bool], path_of: Callable[[str], str]) -> None:
        self._is_excluded = is_excluded
        self._path_of = path_of
        self._documents: dict[str, OpenText] = {}  # most recently used last
        self._selections: dict[str, tuple[CutSnippet, ...]] = {}  # likewise
        self._gathered: dict[str, tuple[TextProposal, ...]] = {}  # likewise
        self._baselines = Baselines()

    def uris_for(self, uri: str) -> Collection[str]:
        """The documents that snippets of a prompt of `uri` may be taken from."""
        return {each.uri for each in self._gathered.get(uri, ())} | {each.uri for each in self._selections.get(uri, ())}

    @property
    def documents(self) -> Iterable[OpenText]:
        """The documents that are open, the most recently used first."""
        return reversed(self._documents.values())

    def selection(self, uri: str) -> Sequence[CutSnippet]:
        """The snippets of the last prompt of `uri`."""
        return self._selections.get(uri, ())

    def visited(self, document: Document, line: int) -> None:
        """The user looks at this line of the document."""
        self._baselines.viewed(document)
        self.edited(document, line)

    def edited(self, document: Document, line: int) -> None:
        """The user has edited the document at this line: not a look, after which an old edit would be forgotten."""
        self._documents.pop(document.uri, None)
        self._documents[document.uri] = OpenText(document, line)
        _drop_oldest(self._documents, _MAX_DOCUMENTS)

    def expect(self, uri: str) -> None:
        """Take what `gathered` brings for `uri`, until the document is closed."""
        self._gathered[uri] = self._gathered.pop(uri, ())
        _drop_oldest(self._gathered, _MAX_SELECTIONS)

    def gathered(self, uri: str, proposals: Iterable[TextProposal], gone: Collection[CutSnippet]) -> None:
        """Take what the sources propose for `uri` from now on, and drop snippets that their files no longer contain.

        Nothing changes if `uri` was closed since it was expected.
        """
        if uri not in self._gathered:
            return
        self._gathered[uri] = tuple(proposals)
        if gone:
            self._selections[uri] = tuple(each for each in self._selections.get(uri, ()) if each not in gone)

    def edits(self, uri: str) -> Iterator[EditedText]:
        """The changes of other documents than `uri`, the most recently used first."""
        changed = (self._baselines.edited(each.document) for each in self.documents if each.document.uri != uri)
        return (each for each in changed if each is not None)

    def closed(self, uri: str) -> None:
        """Drop a document that was closed or excluded, and all text from it."""
        self._baselines.closed(uri)
        self._documents.pop(uri, None)
        self._gathered.pop(uri, None)
        for target, selection in self._selections.items():
            # What was staged is old by the next commit, whose message has the same URI.
            kept = (each for each in selection if each.origin != "staged" or target != uri)
            self._selections[target] = tuple(snippet for snippet in kept if snippet.uri != uri)
        for target, proposals in self._gathered.items():
            self._gathered[target] = tuple(proposal for proposal in proposals if proposal.uri != uri)

    def context_for(
        self, uri: str, budget_chars: int, sources: Collection[ContextSource] = STABLE_FIRST, *, adds: bool = True
    ) -> Context:
        """The snippets of these sources for a prompt of `uri`; `budget_chars` limits paths and text, in code points.

        Unless it `adds`, they are those of the last prompt that still hold.
        """
        earlier = [snippet for snippet in self._selections.pop(uri, ()) if snippet.origin in sources]
        kept = self._still_good(earlier, budget_chars)
        proposals = [each for each in self._gathered.get(uri, ()) if adds and each.origin in sources]
        selection = self._complete(kept, sorted(proposals, key=lambda each: -each.rank), budget_chars)
        self._selections[uri] = selection
        _drop_oldest(self._selections, _MAX_SELECTIONS)
        return Context(
            tuple(chosen.snippet for chosen in selection),
            frozenset(chosen.uri for chosen in selection),
            tuple(chosen.origin for chosen in selection),
        )

    def _still_good(self, selection: Sequence[CutSnippet], budget_chars: int) -> list[CutSnippet]:
        """The snippets that are not excluded and whose documents still contain them, within the budget."""
        kept: list[CutSnippet] = []
        for snippet in selection:
            if self._is_excluded(snippet.uri):
                continue
            found = self._find_again(snippet)
            if found is None or any(_overlap(found, other) for other in kept):
                continue
            budget_chars -= found.chars
            if budget_chars < 0:
                break
            kept.append(found)
        return kept

    def _find_again(self, snippet: CutSnippet) -> CutSnippet | None:
        """The snippet in its open document; one read from a file that is not open holds until it is reported gone."""
        source = self._documents.get(snippet.uri)
        if source is None:
            return snippet if snippet.stamp is not None else None
        return find_again(snippet, source.document)

    def _complete(self, kept: list[CutSnippet], proposals: Sequence[TextProposal], budget_chars: int) -> tuple[CutSnippet, ...]:
        """The kept snippets and behind them new ones: the text that changes least first, then the best last."""
        added, crowded_out = self._fill(kept, proposals, budget_chars)
        furthest = _LAG * (len(kept) + len(added))
        if crowded_out is not None and crowded_out < furthest:
            leading = [snippet for snippet in kept if any(each.is_in(snippet) for each in proposals[:furthest])]
            if len(leading) < len(kept):
                kept = leading
                added, _ = self._fill(kept, proposals, budget_chars)
        added.reverse()
        return (*kept, *sorted(added, key=lambda snippet: STABLE_FIRST.index(snippet.origin)))

    def _fill(
        self, kept: Sequence[CutSnippet], proposals: Sequence[TextProposal], budget_chars: int
    ) -> tuple[list[CutSnippet], int | None]:
        """New snippets, best first, of each source until one does not fit.

        With the index of the first proposal that did not fit, None if all fit.
        """
        added: list[CutSnippet] = []
        crowded_out: dict[ContextSource, int] = {}
        room = budget_chars - sum(snippet.chars for snippet in kept)
        for index, proposal in enumerate(proposals):
            chosen = [*kept, *added]
            uri = proposal.uri
            if proposal.origin in crowded_out or any(map(proposal.is_in, chosen)) or self._is_excluded(uri):
                continue
            taken = [snippet.span for snippet in chosen if snippet.uri == uri and snippet.is_verbatim]
            snippet = proposal.cut(self._path_of(uri), budget_chars // _MIN_CHUNKS, taken)
            if snippet is None or any(snippet.snippet.text == other.snippet.text for other in chosen):
                continue
            if snippet.chars > room:
                crowded_out[proposal.origin] = index
                continue
            room -= snippet.chars
            added.append(snippet)
        return added, min(crowded_out.values(), default=None)


def _overlap(snippet: CutSnippet, other: CutSnippet) -> bool:
    if not (snippet.is_verbatim and other.is_verbatim):
        return False
    return snippet.uri == other.uri and snippet.first < other.span.stop and other.first < snippet.span.stop


def _drop_oldest(mapping: dict[str, _Value], limit: int) -> None:
    while len(mapping) > limit:
        del mapping[next(iter(mapping))]
