"""The rules of an ignore file, one per line in the syntax of .gitignore, and which of them match a path.

Names, paths and endings are looked up in tables, so that the number of rules costs no time; the total size of
patterns with other wildcards is limited.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lsp_server.exclusion.ignore_patterns import BadPattern, expression, is_literal

_MOST_WILDCARDS = 1 << 16  # bytes of all patterns of one file that are matched one by one


class Rule(NamedTuple):
    """A line of an ignore file."""

    line: int  # from 1; the matching rule with the highest number decides
    text: str
    negated: bool


class TooManyWildcards(ValueError):
    """The patterns of one file would take too long to match; the message names the limit."""


@dataclass(slots=True)
class _Table:
    """The rules for files, or those for folders; of equal patterns the last rule."""

    names: dict[bytes, Rule] = field(default_factory=dict)
    paths: dict[bytes, Rule] = field(default_factory=dict)
    endings: dict[bytes, Rule] = field(default_factory=dict)  # of `*.py`
    ending_lengths: set[int] = field(default_factory=set)
    name_patterns: list[tuple[re.Pattern[bytes], Rule]] = field(default_factory=list)
    path_patterns: list[tuple[re.Pattern[bytes], Rule]] = field(default_factory=list)

    def last_match(self, path: bytes) -> Rule | None:
        """The last of the rules that match this path, relative to the folder of the rules' file."""
        name = path.rpartition(b"/")[2]
        lengths = (length for length in self.ending_lengths if length <= len(name))
        endings = (self.endings.get(name[len(name) - length :]) for length in lengths)
        last = max(filter(None, (self.names.get(name), self.paths.get(path), *endings)), default=None)
        for patterns, text in ((self.name_patterns, name), (self.path_patterns, path)):
            later = ((expression, rule) for expression, rule in reversed(patterns) if last is None or rule > last)
            last = next((rule for expression, rule in later if expression.fullmatch(text)), last)
        return last


class Rules:
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

    def last_match(self, path: str, *, is_folder: bool) -> Rule | None:
        """The rule that decides over the path itself (relative to the rules' folder), not over a folder above it."""
        table = self._folders if is_folder else self._files
        return table.last_match(self._folded(os.fsencode(path)))

    def _add(self, text: str, number: int) -> None:
        pattern = _without_trailing_space(os.fsencode(text.removesuffix("\r")))
        if pattern in (b"", b"/") or pattern.startswith(b"#"):
            return
        rule = Rule(number, os.fsdecode(pattern), pattern.startswith(b"!"))
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
