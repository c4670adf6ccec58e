"""Finds lines that introduce a name which later lines use, so that a model has to look at the suffix to write them."""

import keyword
import re
from collections.abc import Sequence

_NAME = re.compile(r"[^\W\d]\w+")
_COMMENT = re.compile(r"\s*(?:#|//|/?\*|--|\"\"\"|''')")
_OTHER_KEYWORDS = (
    "boolean case catch const default delete do double enum export extends fn func function implements int interface "
    "let match mut new null number package private protected public static string struct super switch this throw "
    "true type typeof undefined use var void"
)
_KEYWORDS = frozenset((*keyword.kwlist, *_NAME.findall(_OTHER_KEYWORDS)))


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
