"""Where a suggestion may end: one line in the middle of a line, a block where a block may begin."""

from __future__ import annotations

from lsp_server.editing.languages import opens_block
from lsp_server.filters.indentation import indentation
from protocol.messages import StopRule


def stop_rule(before: str, after: str, language_id: str, *, multi_line: bool) -> StopRule:
    """The rule for a cursor between `before` and `after`, both on its line, the line end left out.

    A blank line takes a block of its own indentation or deeper; the end of a line that opens a block takes
    lines indented deeper than that line. All other places take the rest of the line, including the inside of
    brackets that the editor closed: a block would push the closers down.
    """
    if not multi_line or after.strip():
        return StopRule()
    if not before.strip():
        return StopRule(indent=indentation(before))
    if opens_block(before, language_id):
        return StopRule(indent=indentation(before) + 1)
    return StopRule()
