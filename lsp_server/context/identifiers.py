"""The identifiers in lines of code, without the words that every file has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_LONGEST_LINE = 1000  # of a longer one only the beginning is read: it is data, not code
_IDENTIFIER = re.compile(r"[^\W\d]\w{1,99}")
_NO_USE = re.compile(r"\s*(?:#|//|/?\*|import\b|from\b|use\b|export\s*[{*]|\"\"\"|'''|>>>)")
_DEFINED = re.compile(
    r"\b(?:class|def|enum|fn|func|function|impl|interface|mod|namespace|struct|trait|type)[^\S\n]+[^\W\d]\w*"
)
_COMMON = frozenset(
    re.findall(
        r"\S+",
        "False None Self True and any arguments as assert async await bool boolean break case catch class cls "
        "const continue crate debugger def default del delete do double elif else enum except export extends "
        "false finally float fn for from func function global go if impl implements import in instanceof int "
        "interface is lambda let long match mod module mut namespace new nil nonlocal not null number object of "
        "or package pass print private protected pub public raise range readonly return self short static str "
        "string struct super switch this throw trait true try type typeof undefined use var void while with yield ",
    )
)


def identifiers(line: str) -> list[str]:
    """The identifiers of a line in their order, at least two letters each; keywords are left out."""
    return [name for name in _IDENTIFIER.findall(line[:_LONGEST_LINE]) if name not in _COMMON]


def identifier_set(lines: Iterable[str]) -> frozenset[str]:
    """The different identifiers of the lines."""
    return frozenset(name for line in lines for name in identifiers(line))


def uses(lines: Iterable[str]) -> Iterator[tuple[int, frozenset[str]]]:
    """The number of each line that uses identifiers, with these; imports, comments and what a line defines are none."""
    for number, line in enumerate(lines):
        if not _NO_USE.match(line) and (names := frozenset(identifiers(_DEFINED.sub("", line[:_LONGEST_LINE])))):
            yield number, names


def names_used(lines: Iterable[str]) -> set[str]:
    """The identifiers that all lines use together, as `uses` tells them, in one pass over the text."""
    text = "\n".join(line[:_LONGEST_LINE].rstrip("\n") for line in lines if not _NO_USE.match(line))
    return set(_IDENTIFIER.findall(_DEFINED.sub("", text))) - _COMMON
