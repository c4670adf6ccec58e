"""Cuts a text into a training example: chooses the anchor, the cursor and the fragments."""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile
from operator import eq
from random import Random
from typing import Literal, NamedTuple

from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.examples.later_names import lines_with_later_names
from midfill_lab.training.options import ExampleOptions
from protocol.messages import Snippet

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
        encode_fragments(fragments, vocabulary)
        for fragments in (_led(example.prefix, fim.lead), example.middle, example.suffix)
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
