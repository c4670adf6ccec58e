"""Cuts a text into a training example: anchor, cursor and fragments, and snippets of other files of the package."""

import keyword
import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise, takewhile
from operator import eq
from random import Random
from typing import Literal, NamedTuple

import numpy as np

from midfill_lab.training.corpus import Corpus
from midfill_lab.training.options import ExampleOptions
from midfill_lab.training.vocabulary import Vocabulary
from protocol.messages import Snippet

_NAME = re.compile(r"[^\W\d]\w+")
_COMMENT = re.compile(r"\s*(?:#|//|/?\*|--|\"\"\"|''')")
_OTHER_KEYWORDS = (
    "boolean case catch const default delete do double enum export extends fn func function implements int interface "
    "let match mut new null number package private protected public static string struct super switch this throw "
    "true type typeof undefined use var void"
)
_KEYWORDS = frozenset((*keyword.kwlist, *_NAME.findall(_OTHER_KEYWORDS)))
MAX_MIDDLE_LINES = 30
MAX_LINE_INCREMENT = 300
MAX_INCREMENT = 1200
_REST_OF_WORD = re.compile(r"\s*\S*\s*\S?")  # behind a cut: what can change the tokens before it
_LONGEST_WORD = 64
_LAST_WORD = re.compile(r"(?<=\S) \S+\s*\Z|(?<=\S) \s*\Z")

Order = Literal["psm", "spm"]
Layout = Literal["psm", "spm", "efim"]
Reach = Literal["line", "lines", "block", "characters", "nothing"]
# Extent of the part to complete; the most frequent in editors comes first.
_REACHES: dict[Reach, float] = {"line": 0.45, "lines": 0.13, "block": 0.17, "characters": 0.22, "nothing": 0.03}
MAX_LINES = 40
MIN_LINES = 5
MAX_LINES_BELOW = 20  # of a definition
SNIPPET_CANDIDATES = 12
MOST_SNIPPETS = 3
MOST_NAMESAKES = 4  # a name with more definitions says little
OTHERS_RATE = 0.7  # share of definitions with other snippets beside them
_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_DEFINED = r"([A-Za-z_]\w{3,})"
_DEFINITION = re.compile(
    r"[ \t]*(?:(?:export|default|declare|abstract|async|pub(?:\([^)\n]*\))?|unsafe|static)[ \t]+)*"
    rf"(?:class|def|enum|fn|func|function|impl|interface|namespace|struct|trait|type)[ \t]+{_DEFINED}"
    rf"|(?:export[ \t]+)?const[ \t]+{_DEFINED}"  # not one in a function
)

_NO_CODE = re.compile(r"\s*(?:#|//|/?\*|import\b|from\b|export\s*[{*]|package\b|use\b|\"\"\"|'''|>>>)")
_USE = re.compile(r"\b(?:[A-Z]\w{3,}|[a-z_]\w{3,}(?=\())")  # a type, a constant or a call
LEAST_BEHIND_NAME = 4  # characters of the line: the name alone says little of its definition

_LINE_THAT_DEFINES = re.compile(rf"\n(?:{_DEFINITION.pattern})".encode())  # a newline is found faster than "^"

_Place = tuple[int, int]  # a document, and one of the corpus's lines


def lines_with_later_names(text: str, starts: Sequence[int]) -> list[int]:
    """The numbers of the lines of `text` that have the first occurrence of a name, and not its last.

    starts: offsets of all line starts, and of the end of the text. Comments and keywords do not count.
    """
    first: dict[str, int] = {}
    found: set[int] = set()
    for line in range(len(starts) - 1):
        content = text[starts[line] : starts[line + 1]]
        if _COMMENT.match(content):
            continue
        for name in _NAME.findall(content):
            if name not in _KEYWORDS and first.setdefault(name, line) < line:
                found.add(first[name])
    return sorted(found)


class Tokens(NamedTuple):
    """Token ids, and whether a model should learn to write each."""

    ids: list[int]
    learned: list[bool]

    @classmethod
    def all_learned(cls, ids: list[int]) -> "Tokens":
        return cls(ids, [True] * len(ids))

    def __add__(self, other: "Tokens") -> "Tokens":  # type: ignore[override]
        return Tokens(self.ids + other.ids, self.learned + other.learned)


@dataclass(frozen=True)
class FimExample:
    """A text as the fragments of its prefix, middle and suffix; each fragment is tokenized on its own.

    The middle is the increment followed by the completion. They may be one fragment, or split further.
    """

    prefix: tuple[str, ...]
    middle: tuple[str, ...]
    suffix: tuple[str, ...]
    order: Order = "psm"

    @property
    def text(self) -> str:
        return "".join((*self.prefix, *self.middle, *self.suffix))


def cut_example(text: str, options: ExampleOptions, rng: Random, cursor: int | None = None) -> FimExample:
    """Cut `text`, whole lines, as a language server lays out a prompt.

    In EFIM the prefix ends at an anchor, usually a line start some lines above the cursor; in PSM and SPM it ends at
    the cursor. The suffix begins where the completion must stop. Without a suffix the example is a head of `text`.

    Args:
        cursor: an offset in `text`, for an example that completes the line from there on.
    """
    starts = _line_starts(text)
    if cursor is None:
        line, cursor, end = _pick_hole(text, starts, options, rng)
    else:
        line = bisect_right(starts, cursor) - 1
        end = _line_end(text, starts, line)
    layout = _pick_layout(options, rng)
    anchor = _pick_anchor(starts, line, cursor, rng) if layout == "efim" else cursor
    middle = text[anchor:end]
    cuts: list[int] = []
    if rng.random() < options.fragment_rate:
        cuts.append(cursor - anchor)
        if rng.random() < options.further_cuts_rate:
            cuts += _random_cuts(len(middle), options, rng)
    suffix = "" if rng.random() < options.open_end_rate else text[end:]
    order: Order = "spm" if layout == "spm" else "psm"
    if options.prompt_loss and rng.random() < options.context_fragment_rate:
        sides = random_fragments(text[:anchor], options, rng), random_fragments(suffix, options, rng)
    else:
        sides = split_at(text[:anchor], []), split_at(suffix, [])
    return FimExample(sides[0], split_at(middle, cuts), sides[1], order)


def split_at(text: str, cuts: list[int]) -> tuple[str, ...]:
    """Split `text` at the given offsets, dropping empty parts."""
    bounds = [0, *sorted(cuts), len(text)]
    return tuple(text[start:end] for start, end in pairwise(bounds) if start < end)


def random_fragments(text: str, options: ExampleOptions, rng: Random) -> tuple[str, ...]:
    """Split a text into fragments of random lengths, short ones as likely as long ones."""
    return split_at(text, _random_cuts(len(text), options, rng))


def _random_cuts(length: int, options: ExampleOptions, rng: Random) -> list[int]:
    shortest, longest = math.log2(options.shortest_fragment), math.log2(options.longest_fragment)
    cuts, position = list[int](), 0
    while (position := position + round(2 ** rng.uniform(shortest, longest))) < length:
        cuts.append(position)
    return cuts


def encode_fragments(fragments: Sequence[str], vocabulary: Vocabulary) -> Tokens:
    """Encode fragments, each on its own.

    The tokens that a cut makes at the end of its fragment, such as `ret` before `urn`, are not to be learned: in use
    they are typed, never written. A model that learned them would expect a cut anywhere, and write pieces of words.
    """
    text = "".join(fragments)
    ids: list[int] = []
    learned: list[bool] = []
    for fragment, end in zip(fragments, accumulate(map(len, fragments)), strict=True):
        own = vocabulary.encode(fragment)
        cut = _cut_tokens(fragment, text, end, own, vocabulary) if end < len(text) else 0
        ids += own
        learned += [True] * (len(own) - cut) + [False] * cut
    return Tokens(ids, learned)


def _cut_tokens(fragment: str, text: str, end: int, own: list[int], vocabulary: Vocabulary) -> int:
    """How many of the last tokens of `fragment`, which are `own`, the text behind its `end` would change.

    Only the last word before the cut and the first behind it are tokenized again: a space behind other text always
    begins a token.
    """
    found = _LAST_WORD.search(fragment, max(0, len(fragment) - _LONGEST_WORD))
    last = own
    if found:
        last = vocabulary.encode(found[0])
        if own[len(own) - len(last) :] != last:
            found, last = None, own
    rest = _REST_OF_WORD.match(text, end, end + _LONGEST_WORD)
    assert rest is not None
    uncut = vocabulary.encode((found[0] if found else fragment) + rest[0])
    return len(last) - sum(1 for _ in takewhile(bool, map(eq, last, uncut)))


def lay_out(example: FimExample, vocabulary: Vocabulary) -> tuple[Tokens, Tokens]:
    """The tokens of the prompt, and those of the middle with the marker that ends it.

    PSM is `<PRE> prefix <SUF> suffix <MID> middle`; SPM is `<SUF> suffix <PRE> prefix <MID> middle` (Bavarian et al.,
    arXiv 2207.14255, section 3). Families that support only one order use it for all examples.
    """
    fim, markers = vocabulary.format, vocabulary.markers
    prefix, middle, suffix = (
        encode_fragments(fragments, vocabulary) for fragments in (_led(example.prefix, fim.lead), example.middle, example.suffix)
    )
    prefix, suffix = _marker(markers.prefix) + prefix, _marker(markers.suffix) + suffix
    sides = suffix + prefix if fim.suffix_first or example.order == "spm" else prefix + suffix
    prompt = _marker(markers.begin) + sides + _marker(markers.middle)
    return prompt, middle + _marker(markers.end_of_text)


def with_context(prompt: Tokens, context: list[int], vocabulary: Vocabulary) -> Tokens:
    """A prompt with the tokens of snippets in front, as `inference.text.prompts` lays it out where a model serves."""
    begin = _marker(vocabulary.markers.begin)
    rest = Tokens(prompt.ids[len(begin.ids) :], prompt.learned[len(begin.ids) :])
    return begin + Tokens.all_learned(context) + rest


def _marker(marker: int | None) -> Tokens:
    return Tokens.all_learned([] if marker is None else [marker])


def encode_snippet(snippet: Snippet, vocabulary: Vocabulary) -> list[int]:
    """A snippet's tokens: with its path behind the family's file separator, if it has one."""
    separator = vocabulary.markers.file_separator
    if separator is None:
        return vocabulary.encode(snippet.text)
    return [separator, *vocabulary.encode(f"{snippet.path}\n{snippet.text}")]


def _led(fragments: tuple[str, ...], lead: str) -> tuple[str, ...]:
    """The fragments with `lead` joined to the first, so that both are tokenized together."""
    return (lead + fragments[0], *fragments[1:]) if fragments else ()


def _pick_layout(options: ExampleOptions, rng: Random) -> Layout:
    kind = rng.random()
    if kind < options.efim_rate:
        return "efim"
    return "spm" if kind < options.efim_rate + options.spm_rate else "psm"


def _line_starts(text: str) -> list[int]:
    """Offsets of all line starts, and of the end of the text."""
    starts = [0]
    while (newline := text.find("\n", starts[-1])) >= 0:
        starts.append(newline + 1)
    return starts if starts[-1] == len(text) else [*starts, len(text)]


def _pick_hole(text: str, starts: list[int], options: ExampleOptions, rng: Random) -> tuple[int, int, int]:
    """The cursor's line, the cursor, and where the suffix starts."""
    if options.later_name_rate > 0 and rng.random() < options.later_name_rate:
        lines = lines_with_later_names(text, starts)
        if lines:
            line = rng.choice(lines)
            cursor = starts[line] + rng.choice((0, _indent(text, starts, line)))
            return line, cursor, _line_end(text, starts, line)
    line = _pick_line(text, starts, rng)
    cursor = _pick_cursor(text, starts, line, rng)
    return line, cursor, _pick_end(text, starts, line, cursor, rng)


def _pick_line(text: str, starts: list[int], rng: Random) -> int:
    """A line for the cursor, rarely a blank one or one with little above, which neither show where a prefix ends."""
    lines = len(starts) - 1
    line = rng.randrange(lines)
    says_little = line < lines // 6 or not text[starts[line] : starts[line + 1]].strip()
    return rng.randrange(lines) if says_little and rng.random() < 0.8 else line


def _line_end(text: str, starts: list[int], line: int) -> int:
    """The offset of a line's newline, or of the text's end."""
    end = starts[line + 1]
    return end - 1 if end > starts[line] and text[end - 1] == "\n" else end


def _indent(text: str, starts: list[int], line: int) -> int:
    content = text[starts[line] : _line_end(text, starts, line)]
    return len(content) - len(content.lstrip())


def _pick_cursor(text: str, starts: list[int], line: int, rng: Random) -> int:
    """A position in the code of the line, often its beginning, the line's start (as after a newline) or its end."""
    start, end = starts[line], _line_end(text, starts, line)
    code = start + _indent(text, starts, line)
    kind = rng.random()
    if kind < 0.18:
        return code
    if kind < 0.30:
        return start
    if kind < 0.36:
        return rng.randint(start, code)
    if kind < 0.46:
        return end
    return rng.randint(code, end)


def _pick_end(text: str, starts: list[int], line: int, cursor: int, rng: Random) -> int:
    """The start of the suffix, at or after the cursor."""
    last = min(len(starts) - 2, line + MAX_MIDDLE_LINES)
    reach = rng.choices(tuple(_REACHES), tuple(_REACHES.values()))[0]
    at_line_end = cursor == _line_end(text, starts, line)
    if reach == "nothing":
        return cursor
    if reach == "characters":
        return min(len(text), cursor + round(math.exp(rng.uniform(0, math.log(150)))))
    if reach == "line" and not at_line_end:
        return _line_end(text, starts, line)
    if reach == "block":
        return _line_end(text, starts, _block_end(text, starts, line, last))
    return _line_end(text, starts, min(last, line + 1 + int(rng.expovariate(0.5))))


def _block_end(text: str, starts: list[int], line: int, last: int) -> int:
    """The last non-blank line before one that is indented less than `line`."""
    indent, end = _indent(text, starts, line), line
    for following in range(line + 1, last + 1):
        if not text[starts[following] : starts[following + 1]].strip():
            continue
        if _indent(text, starts, following) < indent:
            break
        end = following
    return end


def _pick_anchor(starts: list[int], line: int, cursor: int, rng: Random) -> int:
    """A line start at or above the cursor's line; occasionally any position before the cursor.

    Most are some lines above, as a language server lays anchors, with lines typed since in between.
    """
    kind = rng.random()
    if kind < 0.08:
        return rng.randint(max(0, cursor - MAX_LINE_INCREMENT), cursor)
    if kind < 0.28:
        above = 0
    elif kind < 0.92:
        above = rng.randint(1, 12)
    else:
        above = rng.randint(12, 40)
    anchor = starts[max(0, line - above)]
    # A language server lays a new anchor when the increment becomes long.
    if cursor - anchor > MAX_INCREMENT:
        anchor = starts[bisect_right(starts, cursor - MAX_INCREMENT)]
    return min(anchor, cursor)


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
        for _ in range(rng.randint(1, MOST_SNIPPETS) if others else 0):
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

    def with_definition(self, document: int, text: str, use: SymbolUse, max_chars: float, rng: Random) -> tuple[Snippet, ...]:
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
        found = [self._anywhere(others, rng) for _ in range(1 if kind == "anywhere" else SNIPPET_CANDIDATES)]
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
