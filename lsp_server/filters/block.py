"""Where a suggestion ends: the rule for the core, and the filters that end a line, a block or a statement."""

from __future__ import annotations

from lsp_server.editing.indentation import indentation, leading_space
from lsp_server.editing.languages import language, opens_block
from lsp_server.filters.balance import closes_unopened
from lsp_server.filters.cursor_context import CursorContext, Insertion
from protocol.messages import Alternative, Completion, StopRule

_CLOSERS = ")]}"


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


def without_cut_line(found: Completion | Alternative) -> str:
    """The text, without the line that the token limit has cut, if it has; the only line with text stays."""
    if found.finish_reason != "length":
        return found.text
    lines = found.text.rpartition("\n")[0]
    return lines if lines.strip() else found.text


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
