"""Patterns of .gitignore as regular expressions whose matching takes polynomial time, whatever their wildcards.

They match what git's wildmatch does, byte by byte. A wildcard that more of the pattern follows commits to the first
place where that fits, in an atomic group: within one name no later place can match more, nor can a later
folder after `**`. Without the group, `*a*a*a*a*b` takes exponential time.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence

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
