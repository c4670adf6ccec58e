"""Reads a rendered FIM prompt back: which text stands before and behind the cursor, and which files in front.

A client that renders a model's prompt itself sends one text with the markers in it, in the order of PSM or SPM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from inference.text.fim import FORMATS
from inference.text.token_bytes import SPACE_MARK
from protocol.messages import MAX_SNIPPETS, Snippet

_LONGEST_MARKER = 32  # with white space before it
_LIKE_A_MARKER = re.compile(
    r"\s{0,8}([<\[][|｜]?[\w▁-]{0,12}(?:fim|prefix|suffix|middle|hole)[\w▁-]{0,12}[|｜]?[>\]])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """The parts of a rendered prompt, as text."""

    before: str
    after: str
    files: tuple[Snippet, ...] = ()


@dataclass(slots=True)
class _Markers:
    """The markers of the families whose prefix, suffix and middle are the same strings."""

    prefix: str
    suffix: str
    middle: str
    begins: set[str] = field(default_factory=set)
    separators: set[str] = field(default_factory=set)
    repositories: set[str] = field(default_factory=set)
    spaced: bool = False  # a space belongs to each marker, as in `<PRE> prefix <SUF>suffix <MID>`

    @property
    def first(self) -> tuple[str, ...]:
        """What a prompt begins with, behind the marker of its beginning."""
        return (self.prefix, self.suffix, *self.separators, *self.repositories)


def read_rendered(text: str) -> RenderedPrompt | None:
    """The parts of a rendered prompt; None if the text does not begin like one, or lacks a marker.

    Before the markers of prefix and suffix stand at most a marker that begins a prompt, a repository's name and files.
    Where a marker's string occurs more than once, the first counts; of the middle's, the last.
    """
    return next((rendered for markers in _MARKERS if (rendered := _read(text, markers)) is not None), None)


def unknown_marker(text: str) -> str | None:
    """What a text that `read_rendered` does not read begins with, if that looks like a marker of some model."""
    found = _LIKE_A_MARKER.match(text)
    return None if found is None else found[1]


def _read(text: str, markers: _Markers) -> RenderedPrompt | None:
    begin = next((begin for begin in markers.begins if begin and text.startswith(begin)), "")
    if not text[len(begin) : len(begin) + _LONGEST_MARKER].lstrip().startswith(markers.first):
        return None
    head_and_rest = _cut_at_first(text[len(begin) :], markers.prefix, markers.suffix)
    if head_and_rest is None:
        return None
    head, first, rest = head_and_rest
    files = tuple(_sections(head, markers))
    second = markers.suffix if first == markers.prefix else markers.prefix
    window, found, rest = rest.partition(second)
    middle_at = rest.rfind(markers.middle) if markers.middle else 0
    if not found or middle_at < 0 or (first == markers.prefix and not markers.middle):
        return None
    last, increment = rest[:middle_at], rest[middle_at + len(markers.middle) :]
    prefix, suffix = (window, last) if first == markers.prefix else (last, window)
    if markers.spaced:
        prefix, suffix = prefix.removeprefix(" ").removesuffix(" "), suffix.removesuffix(" ")
        increment = increment if prefix else increment.removeprefix(" ")
    return RenderedPrompt(prefix + increment, suffix, files)


def _cut_at_first(text: str, *strings: str) -> tuple[str, str, str] | None:
    """What stands before the first of the strings, this string, and what stands behind it."""
    place, first = min(((text.find(string), string) for string in strings if string in text), default=(-1, ""))
    return None if place < 0 else (text[:place], first, text[place + len(first) :])


def _sections(head: str, markers: _Markers) -> Iterator[Snippet]:
    """The files, each a path in its first line and then the text; the last may be the path of the prompt's own file."""
    if not markers.separators:
        return
    # One more than a request may have: who asks refuses it.
    pieces = re.split("|".join(map(re.escape, sorted(markers.separators))), head, maxsplit=MAX_SNIPPETS + 1)
    for piece in pieces[1:]:  # the first names the repository
        line, _, text = piece.partition("\n")
        if text or line:
            is_path = line and line == line.strip() and not set(line) & set("(){}=;\"'")
            yield Snippet(line, text) if is_path else Snippet("", piece)


def _collect() -> list[_Markers]:
    collected: dict[tuple[str, str, str], _Markers] = {}
    for fim in FORMATS.values():
        prefix, suffix, middle = (marker.removeprefix(SPACE_MARK) for marker in (fim.prefix, fim.suffix, fim.middle))
        markers = collected.setdefault((prefix, suffix, middle), _Markers(prefix, suffix, middle))
        markers.spaced = fim.prefix.startswith(SPACE_MARK)
        markers.begins |= {fim.begin} - {""}
        markers.separators |= {fim.file_separator} - {""}
        markers.repositories |= {fim.repository} - {""}
    return list(collected.values())


_MARKERS = [*_collect(), _Markers("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>")]  # the last are GLM's
