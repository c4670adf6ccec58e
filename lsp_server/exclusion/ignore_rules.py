"""Rules of an ignore file in .gitignore's syntax, as regular expressions that match in polynomial time.

They match what git's wildmatch does, byte by byte. A wildcard that more of the pattern follows commits to the first
place where that fits, in an atomic group: within one name no later place can match more, nor can a later
folder after `**`. Without the group, `*a*a*a*a*b` takes exponential time.

Names, paths and endings are looked up in tables, so that the number of rules costs no time; the total size of
patterns with other wildcards is limited.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_SPECIAL = re.compile(rb"[*?\[\\]")
_STARS = re.compile(rb"\*+")
_STAR = b"*"
_DEEP = b"**"  # at the end: everything below
_FOLDERS = b"**/"  # any number of folders, also none
_SOME_FOLDERS = b"**\\/"  # at least one: git does not see the escaped slash as the one of `**/`
_BETWEEN = {_FOLDERS: b"(?:[^/]*/)*?", _SOME_FOLDERS: b"(?:[^/]*/)+?", _DEEP: b".*"}

_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": "".join(map(chr, range(33, 127))),
    b"lower": string.ascii_lowercase,
    b"print": "".join(map(chr, range(32, 127))),
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}


class BadPattern(ValueError):
    """A pattern that can match nothing: one that ends inside of a bracket, say, or in a backslash."""


def is_literal(pattern: bytes) -> bool:
    """Whether the pattern matches itself alone."""
    return _SPECIAL.search(pattern) is None


def expression(pattern: bytes) -> bytes:
    """The regular expression for `fullmatch` of a pattern that matches a name or a path; BadPattern if nothing does."""
    blocks: list[list[bytes]] = [[]]  # each but the first is preceded by any number of folders
    for part in _parts(pattern):
        if part in _BETWEEN:
            blocks.append([part])
        else:
            blocks[-1].append(part)
    first, *others = blocks
    written = [_BETWEEN[folders] + _block(block) for folders, *block in others]
    committed = (b"(?>%b)" % each for each in written[:-1])
    return b"".join((_block(first), *committed, *written[-1:]))


def _block(parts: Sequence[bytes]) -> bytes:
    """The expression of names with slashes between them; each is matched in one way only."""
    names: list[list[bytes]] = [[]]
    for part in parts:
        if part == b"/":
            names.append([])
        else:
            names[-1].append(part)
    return b"/".join(map(_name, names))


def _name(parts: Sequence[bytes]) -> bytes:
    if _STAR not in parts:
        return b"".join(parts)
    chunks: list[list[bytes]] = [[]]
    for part in parts:
        if part == _STAR:
            chunks.append([])
        else:
            chunks[-1].append(part)
    first, *inner, last = (b"".join(chunk) for chunk in chunks)
    committed = b"".join(b"(?>[^/]*?%b)" % chunk for chunk in inner if chunk)
    return b"(?>%b%b[^/]*%b(?=/|\\Z))" % (first, committed, last)


def _parts(pattern: bytes) -> Iterator[bytes]:
    """The pattern piece by piece: a wildcard as it is written, a slash, or the expression of one other byte."""
    place = 0
    special = _SPECIAL.search(pattern)
    literal_end = special.start() if special else len(pattern)
    while place < len(pattern):
        character = pattern[place : place + 1]
        if stars := _STARS.match(pattern, place):
            # git compares a literal beginning separately, and treats the rest as a new beginning.
            begins = place == literal_end or pattern[place - 1 : place] == b"/"
            wildcard = _stars(stars, begins=begins)
            yield wildcard
            place = stars.end() + max(0, len(wildcard) - 2)
        elif character == b"[":
            members, place = _bracket(pattern, place + 1)
            yield members
        elif character == b"\\":
            if place + 1 == len(pattern):
                raise BadPattern("it ends in a backslash")
            yield _literal(pattern[place + 1 : place + 2])
            place += 2
        else:
            yield b"[^/]" if character == b"?" else _literal(character)
            place += 1


def _literal(character: bytes) -> bytes:
    return character if character == b"/" else re.escape(character)


def _stars(stars: re.Match[bytes], *, begins: bool) -> bytes:
    if not begins or len(stars.group()) == 1:
        return _STAR
    rest = stars.string[stars.end() :]
    if rest.startswith(b"\\/"):
        return _SOME_FOLDERS
    return _DEEP if not rest else _FOLDERS if rest.startswith(b"/") else _STAR


def _bracket(pattern: bytes, place: int) -> tuple[bytes, int]:
    """The expression of a bracket whose inside begins at `place`, and where the pattern goes on after it."""
    negated = pattern[place : place + 1] in (b"!", b"^")
    place += negated
    members: set[int] = set()
    previous: int | None = None  # the byte that a range may begin with
    begin = place
    while place == begin or pattern[place : place + 1] != b"]":
        if (named := _named_class(pattern, place)) is not None:
            more, place = named
            members |= more
            previous = None
            continue
        is_range = pattern[place : place + 1] == b"-" and previous is not None
        if is_range and pattern[place + 1 : place + 2] not in (b"", b"]"):
            last, place = _member(pattern, place + 1)
            members.update(range(previous or 0, last + 1))
            previous = None
        else:
            previous, place = _member(pattern, place)
            members.add(previous)
    members.discard(ord("/"))
    written = b"".join(b"\\x%02x" % member for member in sorted(members))
    if negated:
        return b"[^/%b]" % written, place + 1
    if not members:
        raise BadPattern("a bracket in it matches nothing")
    return b"[%b]" % written, place + 1


def _member(pattern: bytes, place: int) -> tuple[int, int]:
    """The byte at a place inside of a bracket, and the place behind it."""
    place += pattern[place : place + 1] == b"\\"
    if place >= len(pattern):
        raise BadPattern("a bracket in it does not end")
    return pattern[place], place + 1


def _named_class(pattern: bytes, place: int) -> tuple[set[int], int] | None:
    """The bytes that [:name:] stands for, and the place behind it; None if the place has no such name."""
    if pattern[place : place + 2] != b"[:":
        return None
    end = pattern.find(b"]", place + 2)
    if end < 0:
        raise BadPattern("a bracket in it does not end")
    if end < place + 3 or pattern[end - 1 : end] != b":":
        return None
    name = pattern[place + 2 : end - 1]
    if name not in _CLASSES:
        raise BadPattern(f"it names the class {name!r}, which does not exist")
    return set(_CLASSES[name].encode()), end + 1


_MOST_WILDCARDS = 1 << 16  # bytes of all patterns of one file that are matched one by one


class IgnoreRule(NamedTuple):
    """A line of an ignore file."""

    line: int  # from 1; the matching rule with the highest number decides
    text: str
    negated: bool


class TooManyWildcards(ValueError):
    """The patterns of one file would take too long to match; the message names the limit."""


@dataclass(slots=True)
class _Table:
    """The rules for files, or those for folders; of equal patterns the last rule."""

    names: dict[bytes, IgnoreRule] = field(default_factory=dict)
    paths: dict[bytes, IgnoreRule] = field(default_factory=dict)
    endings: dict[bytes, IgnoreRule] = field(default_factory=dict)  # of `*.py`
    ending_lengths: set[int] = field(default_factory=set)
    name_patterns: list[tuple[re.Pattern[bytes], IgnoreRule]] = field(default_factory=list)
    path_patterns: list[tuple[re.Pattern[bytes], IgnoreRule]] = field(default_factory=list)

    def last_match(self, path: bytes) -> IgnoreRule | None:
        """The last of the rules that match this path, relative to the folder of the rules' file."""
        name = path.rpartition(b"/")[2]
        lengths = (length for length in self.ending_lengths if length <= len(name))
        endings = (self.endings.get(name[len(name) - length :]) for length in lengths)
        last = max(filter(None, (self.names.get(name), self.paths.get(path), *endings)), default=None)
        for patterns, text in ((self.name_patterns, name), (self.path_patterns, path)):
            later = ((expression, rule) for expression, rule in reversed(patterns) if last is None or rule > last)
            last = next((rule for expression, rule in later if expression.fullmatch(text)), last)
        return last


class IgnoreRules:
    """The rules of one file, from its lines; TooManyWildcards if they would take too long to match.

    `bad` names the lines that are no pattern, with the reason; git ignores them.
    """

    def __init__(self, lines: Iterable[str], *, ignore_case: bool) -> None:
        self.bad: list[str] = []
        self._ignore_case = ignore_case
        self._files, self._folders = _Table(), _Table()
        self._wildcards = 0
        for number, text in enumerate(lines, start=1):
            try:
                self._add(text, number)
            except BadPattern as error:
                self.bad.append(f"line {number}: {text!r:.200} is not a pattern: {error}")

    def last_match(self, path: str, *, is_folder: bool) -> IgnoreRule | None:
        """The rule that decides over the path itself (relative to the rules' folder), not over a folder above it."""
        table = self._folders if is_folder else self._files
        return table.last_match(self._folded(os.fsencode(path)))

    def _add(self, text: str, number: int) -> None:
        pattern = _without_trailing_space(os.fsencode(text.removesuffix("\r")))
        if pattern in (b"", b"/") or pattern.startswith(b"#"):
            return
        rule = IgnoreRule(number, os.fsdecode(pattern), pattern.startswith(b"!"))
        pattern = self._folded(pattern.removeprefix(b"!"))
        tables = (self._folders,) if pattern.endswith(b"/") else (self._files, self._folders)
        pattern = pattern.removesuffix(b"/")
        if not pattern:
            raise BadPattern("it matches nothing")
        is_path = b"/" in pattern
        pattern = pattern.removeprefix(b"/")
        if is_literal(pattern):
            for table in tables:
                (table.paths if is_path else table.names)[pattern] = rule
        elif not is_path and pattern.startswith(b"*") and is_literal(pattern[1:]):
            for table in tables:
                table.endings[pattern[1:]] = rule
                table.ending_lengths.add(len(pattern) - 1)
        else:
            compiled = self._compiled(pattern)
            for table in tables:
                (table.path_patterns if is_path else table.name_patterns).append((compiled, rule))

    def _compiled(self, pattern: bytes) -> re.Pattern[bytes]:
        self._wildcards += len(pattern)
        if self._wildcards > _MOST_WILDCARDS:
            raise TooManyWildcards(f"its patterns with wildcards exceed {_MOST_WILDCARDS} bytes in all")
        return re.compile(expression(pattern), re.DOTALL | (re.IGNORECASE if self._ignore_case else 0))

    def _folded(self, text: bytes) -> bytes:
        return text.lower() if self._ignore_case else text


def _without_trailing_space(line: bytes) -> bytes:
    """The line without the spaces at its end, up to one that is escaped."""
    end = max((part.end() for part in re.finditer(rb"\\.|[^ ]", line)), default=0)
    return line[:end]
