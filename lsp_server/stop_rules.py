"""Where a suggestion may end: one line in the middle of a line, a block where a block may begin."""

from __future__ import annotations

from protocol.messages import StopRule

_BLOCK_OPENERS = (":", "{", "(", "[", "=>", "->")
_TAB_COLUMNS = 4


def stop_rule(before: str, after: str, *, multi_line: bool) -> StopRule:
    """The rule for a cursor between `before` and `after`, both on its line, the line end left out.

    A blank line takes a block of its own indentation or deeper, the end of a line that opens a block takes
    what is indented deeper than that line. Everything else takes the rest of its line: also the inside of
    brackets that the editor closed, where a block would have to push the closers down.
    """
    if not multi_line or after.strip():
        return StopRule()
    if not before.strip():
        return StopRule(indent=indentation(before))
    if before.rstrip().endswith(_BLOCK_OPENERS):
        return StopRule(indent=indentation(before) + 1)
    return StopRule()


def indentation(line: str) -> int:
    """The columns of white space that the line begins with; a tab reaches the next multiple of 4."""
    columns = 0
    for character in line:
        if character == "\t":
            columns += _TAB_COLUMNS - columns % _TAB_COLUMNS
        elif character.isspace():
            columns += 1
        else:
            break
    return columns
