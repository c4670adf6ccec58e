"""Chooses snippets of other files of a package, as the language server takes them from other files of a project."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from random import Random

import numpy as np

from midfill_lab.training.corpus.corpus import Corpus
from protocol.messages import Snippet

MAX_LINES = 40
MIN_LINES = 5
MAX_LINES_BELOW = 20  # of a definition
CANDIDATES = 12
MOST = 3
MOST_NAMESAKES = 4  # a name with more definitions says little
OTHERS_RATE = 0.7  # share of definitions with other snippets beside them
_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_NAME = r"([A-Za-z_]\w{3,})"
_DEFINITION = re.compile(
    r"[ \t]*(?:(?:export|default|declare|abstract|async|pub(?:\([^)\n]*\))?|unsafe|static)[ \t]+)*"
    rf"(?:class|def|enum|fn|func|function|impl|interface|namespace|struct|trait|type)[ \t]+{_NAME}"
    rf"|(?:export[ \t]+)?const[ \t]+{_NAME}"  # not one in a function
)

_NO_CODE = re.compile(r"\s*(?:#|//|/?\*|import\b|from\b|export\s*[{*]|package\b|use\b|\"\"\"|'''|>>>)")
_USE = re.compile(r"\b(?:[A-Z]\w{3,}|[a-z_]\w{3,}(?=\())")  # a type, a constant or a call
LEAST_BEHIND_NAME = 4  # characters of the line: the name alone says little of its definition

_LINE_THAT_DEFINES = re.compile(rf"\n(?:{_DEFINITION.pattern})".encode())  # a newline is found faster than "^"

_Place = tuple[int, int]  # a document, and one of the corpus's lines


@dataclass(frozen=True)
class SymbolUse:
    """A use of a name that another document defines.

    Attributes:
        from_end: offset of the name from the text's end, so that it stays when the text loses lines at its head.
        definitions: where the name is defined.
    """

    from_end: int
    definitions: tuple[_Place, ...]


class SnippetPicker:
    """Picks snippets from the documents of a package that a text is not of."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._definitions = lru_cache(maxsize=None)(self._find_definitions)  # of all packages: 250 bytes each

    def pick(self, document: int, text: str, max_chars: float, rng: Random) -> tuple[Snippet, ...]:
        """One to three snippets of the other documents of a package, of at most `max_chars` together.

        Each is, with equal probability, lines from anywhere, the lines with most words in common with `text` among
        several, or the definition of a name in `text`: models learn that some files are related and others are not.
        """
        others = [index for index in self._corpus.package_of(document) if index != document]
        words = set(_WORD.findall(text))
        chosen: list[Snippet] = []
        for _ in range(rng.randint(1, MOST) if others else 0):
            snippet = _shortened(self._snippet(document, others, words, rng), max_chars)
            if snippet.text.strip() and snippet not in chosen:
                chosen.append(snippet)
                max_chars -= len(snippet.path) + len(snippet.text)
        return tuple(chosen)

    def find_use(self, document: int, text: str, rng: Random) -> SymbolUse | None:
        """A random use in `text` of a name that other documents of the package define, and this one does not."""
        definitions = self._definitions(self._corpus.package_of(document))
        uses: list[SymbolUse] = []
        start = 0
        for line in text.splitlines(keepends=True):
            if not _NO_CODE.match(line) and not _DEFINITION.match(line):
                end = len(line.rstrip())
                for found in _USE.finditer(line):
                    places = definitions.get(found[0], ())
                    is_text = any(line.count(quote, 0, found.start()) % 2 for quote in "\"'`")
                    fits = found.end() + LEAST_BEHIND_NAME <= end
                    if fits and not is_text and _is_useful(places, document):
                        uses.append(SymbolUse(len(text) - start - found.start(), tuple(places)))
            start += len(line)
        return rng.choice(uses) if uses else None

    def with_definition(
        self, document: int, text: str, use: SymbolUse, max_chars: float, rng: Random
    ) -> tuple[Snippet, ...]:
        """The definition of a used name, often among other snippets, of at most `max_chars` together."""
        count = 1 + rng.choice((rng.randint(0, 3), rng.randint(0, MAX_LINES_BELOW)))
        definition = _shortened(self._cut(*rng.choice(use.definitions), count), max_chars)
        left = max_chars - len(definition.path) - len(definition.text)
        others = self.pick(document, text, left, rng) if rng.random() < OTHERS_RATE else ()
        chosen = [definition, *(each for each in others if not _share_lines(each, definition))]
        rng.shuffle(chosen)
        return tuple(each for each in chosen if each.text.strip())

    def _snippet(self, document: int, others: Sequence[int], words: set[str], rng: Random) -> Snippet:
        kind = rng.choice(("anywhere", "similar", "definition"))
        if kind == "definition" and (place := self._definition(document, words, rng)):
            return self._cut(*place, 1 + rng.choice((rng.randint(0, 3), rng.randint(0, MAX_LINES_BELOW))))
        found = [self._anywhere(others, rng) for _ in range(1 if kind == "anywhere" else CANDIDATES)]
        return max(found, key=lambda snippet: len(words & set(_WORD.findall(snippet.text))))

    def _anywhere(self, others: Sequence[int], rng: Random) -> Snippet:
        index = rng.choice(others)
        lines = self._corpus.lines(index)
        count = rng.randint(MIN_LINES, MAX_LINES)
        return self._cut(index, lines.start + rng.randint(0, max(0, len(lines) - count)), count)

    def _definition(self, document: int, words: set[str], rng: Random) -> _Place | None:
        """Where another document defines one of the names."""
        definitions = self._definitions(self._corpus.package_of(document))
        defined = [definitions[word] for word in sorted(words & definitions.keys())]
        useful = [places for places in defined if _is_useful(places, document)]
        return rng.choice(rng.choice(useful)) if useful else None

    def _find_definitions(self, package: range) -> dict[str, list[_Place]]:
        """Where the documents of a package define a name."""
        corpus = self._corpus
        first, last = int(corpus.boundaries[package.start]), int(corpus.boundaries[package.stop])
        text = b"\n" + corpus.bytes[first:last].tobytes()
        found = [(match[1] or match[2], match.start()) for match in _LINE_THAT_DEFINES.finditer(text)]
        starts = np.array([first + start for _, start in found], dtype=np.int64)
        documents = np.searchsorted(corpus.boundaries, starts, side="right") - 1
        lines = np.searchsorted(corpus.line_starts, starts)
        places: dict[str, list[_Place]] = defaultdict(list)
        for (name, _), *place in zip(found, documents.tolist(), lines.tolist(), strict=True):
            places[name.decode()].append((place[0], place[1]))
        return dict(places)

    def _cut(self, document: int, first: int, count: int) -> Snippet:
        """At most `count` lines of a document, from one of the corpus's lines."""
        last = min(first + count, self._corpus.lines(document).stop)
        start, end = self._corpus.line_starts[[first, last]].tolist()
        return Snippet(self._corpus.paths[document], self._corpus.text_between(start, end))


def _is_useful(places: Sequence[_Place], document: int) -> bool:
    """Whether a name is defined, in other documents alone, and not too often."""
    return 0 < len(places) <= MOST_NAMESAKES and all(index != document for index, _ in places)


def _share_lines(one: Snippet, other: Snippet) -> bool:
    return one.path == other.path and (one.text in other.text or other.text in one.text)


def _shortened(snippet: Snippet, max_chars: float) -> Snippet:
    """The first lines of a snippet, of at most `max_chars` with its path."""
    sizes = accumulate((len(line) for line in snippet.text.splitlines(keepends=True)), initial=len(snippet.path))
    chars = max((size - len(snippet.path) for size in sizes if size <= max_chars), default=0)
    return Snippet(snippet.path, snippet.text[:chars])
