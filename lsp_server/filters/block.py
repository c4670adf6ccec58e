"""The filter that ends a suggestion where its line or block ends."""

from __future__ import annotations

from lsp_server.filters.balance import closes_unopened
from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.indentation import indentation, leading_space
from lsp_server.filters.stop_rules import stop_rule

_CLOSERS = ")]}"


def end_with_block(insertion: Insertion, context: CursorContext) -> Insertion:
    """One line where the stop rule wants a line; else up to the dedent, or through the closer of the block's bracket.

    The brackets at the beginning of the dedented line belong to the block; `keep_balance` drops surplus ones.
    """
    rule = stop_rule(context.before, context.after, context.language_id, multi_line=context.multi_line)
    first, *more = insertion.text.split("\n")
    lines = [first]
    if rule.indent is not None:
        for line in more:
            if line.strip() and indentation(line) < rule.indent:
                lines += _closers(line)
                break
            lines.append(line)
    return insertion.with_text(_through_closing_line("\n".join(lines), context.language_id))


def _closers(line: str) -> list[str]:
    """The closing brackets that the line begins with, as a line; empty if it begins with anything else."""
    code = line.lstrip()
    rest = code.lstrip(_CLOSERS)
    closers = code[: len(code) - len(rest)]
    return [leading_space(line) + closers] if closers else []


def _through_closing_line(text: str, language_id: str) -> str:
    closed = closes_unopened(text, language_id)
    end = -1 if closed is None else text.find("\n", closed)
    return text if end < 0 else text[:end]
