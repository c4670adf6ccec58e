"""The filter that ends a block with a whole statement, where the model stopped within one."""

from __future__ import annotations

from lsp_server.editing.languages import language, opens_block
from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.indentation import indentation


def drop_cut_line(text: str) -> str:
    """A completion that the token limit ended, without the line that it cut; the only line with text stays."""
    whole = text.rpartition("\n")[0]
    return whole if whole.strip() else text


def end_with_whole_statement(insertion: Insertion, context: CursorContext) -> Insertion:
    """Drop lines from the end of a block until it leaves no bracket or string open and no header without a body.

    The first line with text stays: it is what the user would type next, whole or not.
    """
    lines = insertion.text.split("\n")
    first = next((number for number, line in enumerate(lines, 1) if line.strip()), len(lines))
    while len(lines) > first and _is_half(lines, context):
        lines.pop()
    return insertion.with_text("\n".join(lines))


def _is_half(lines: list[str], context: CursorContext) -> bool:
    last = lines[-1]
    if not last.strip() or _lacks_body(last, context):
        return True
    now, then = context.statement.balance.now, context.statement.balance.with_text("\n".join(lines))
    return then.openers > now.openers or then.strings > now.strings


def _lacks_body(line: str, context: CursorContext) -> bool:
    """Whether the line is a header or a decorator, and what follows in the document is not what belongs below it."""
    below = next(iter(context.filled_below), "")
    if language(context.language_id).opening_line is not None and line.lstrip().startswith("@"):
        return not below or indentation(below) != indentation(line)
    return opens_block(line, context.language_id) and indentation(below) <= indentation(line)
