"""Measures indentation: the depth of a line, and the white space of one step in a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

TAB_COLUMNS = 4
_DEFAULT_UNIT = "    "


def leading_space(line: str) -> str:
    """The white space that the line begins with."""
    return line[: len(line) - len(line.lstrip())]


def indentation(line: str) -> int:
    """The columns of white space that the line begins with; a tab reaches the next multiple of 4."""
    columns = len(line) - len(line.lstrip())
    return len(line[:columns].expandtabs(TAB_COLUMNS)) if "\t" in line else columns


def indent_unit(lines: Iterable[str]) -> str:
    """One step of these lines' indentation: a tab, or the most frequent step of spaces."""
    tabs = 0
    steps: Counter[int] = Counter()
    depth = 0
    for line in lines:
        if not line.strip():
            continue
        space = leading_space(line)
        if "\t" in space:
            tabs += 1
        else:
            if depth < len(space) <= depth + 8:
                steps[len(space) - depth] += 1
            depth = len(space)
    if tabs > steps.total():
        return "\t"
    step = max(steps, key=lambda step: (steps[step], step), default=0)
    return " " * step if step > 1 else _DEFAULT_UNIT
