"""Measures indentation: the depth of a line, the width of a tab, and the white space of one step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from protocol.stopping import columns

TAB_COLUMNS: Final = 4
BODY_OPENERS = (":", "{", "=>")  # after which the body is one step deeper; after `(` two steps are common
_LEAST_EVIDENCE = 2  # headers with a body


def leading_space(line: str) -> str:
    """The white space that the line begins with."""
    return line[: len(line) - len(line.lstrip())]


def indentation(line: str, tab_columns: int = TAB_COLUMNS) -> int:
    """The columns of white space that the line begins with."""
    return columns(leading_space(line), tab_columns)


def tab_width(lines: Iterable[str]) -> Literal[4, 8]:
    """The columns of a tab: 8 where spaces make the steps up to there, as in Vim's and GNU's sources; 4 where tabs do.

    Lines that begin with a star are aligned in a comment.
    """
    spaces = [leading_space(line) for line in lines if line.strip() and not line.lstrip().startswith("*")]
    if not any("\t" in space for space in spaces):
        return 8  # the first tab stands for the columns that spaces do not reach
    small = sum(2 <= len(space) < 8 and "\t" not in space for space in spaces)
    large = sum(len(space) >= 8 and "\t" not in space for space in spaces)
    return 8 if small > 2 * large else TAB_COLUMNS


def indent_unit(lines: Iterable[str]) -> str:
    """The white space by which lines are deeper than the header above them; empty if few are, or not all alike."""
    steps = []
    above = ""
    for line in lines:
        if not line.strip():
            continue
        if above.endswith(BODY_OPENERS) and len(leading_space(line)) > len(leading_space(above)):
            steps.append(leading_space(line).removeprefix(leading_space(above)))
        above = line.rstrip()
    alike = len(steps) >= _LEAST_EVIDENCE and len(set(steps)) == 1
    return steps[0] if alike and steps[0] != " " else ""
