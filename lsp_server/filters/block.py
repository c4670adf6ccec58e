"""Where a suggestion ends: the rule for the core, which the server applies to what it receives, too."""

from __future__ import annotations

import re

from lsp_server.editing.brackets import OPENER_OF
from lsp_server.editing.indentation import indentation
from lsp_server.filters.cursor_context import CursorContext, Insertion
from protocol.messages import StopRule
from protocol.stopping import find_stop

_OPENERS = ("(", "[", "{")
_CLOSING_TAG = re.compile(r"</([\w:.-]+)")


def stop_rule(context: CursorContext) -> StopRule:
    """The rule for a completion at the cursor.

    A blank line takes a block of its own depth or deeper. The end of a line takes the rest of that line, or, if the
    model goes on in the next line, the block of deeper lines; behind an opening bracket both. All other places take
    the rest of the line, including the inside of brackets that the editor closed: a block would push the closers down.
    """
    if not context.multi_line or context.after.strip():
        return StopRule()
    depth, known = indentation(context.before, context.tab_columns), context.language
    is_blank = not context.before.strip()
    return StopRule(
        indent=depth if is_blank else depth + 1,
        one_line=not is_blank and not context.before.rstrip().endswith(_OPENERS),
        closers=known.all_closers if _lacks_closer(context, depth) else (),
        joining=() if is_blank else _joining(context),
        depthless=known.depthless,
        tab_columns=context.tab_columns,
    )


def _joining(context: CursorContext) -> tuple[str, ...]:
    """What continues the block of the cursor's line though it is no deeper; a label ends that of another one."""
    known = context.language
    is_label = context.before.lstrip().startswith(known.labels)
    return known.joining if is_label else known.joining + known.labels


def _lacks_closer(context: CursorContext, depth: int) -> bool:
    """Whether no line below closes the block around the cursor's blank line, or the one that its line opens."""
    header, width = context.before, context.tab_columns
    if not header.strip():
        above = (line for line in reversed(context.filled_above) if indentation(line, width) < depth)
        header = next(above, "")
        depth = indentation(header, width)
    line = next((line for line in context.filled_below if indentation(line, width) <= depth), "")
    has_one = indentation(line, width) == depth and _closes(line.lstrip(), header, context.language.all_closers)
    return not has_one or context.lacking.get(line.lstrip()[0], 0) > 0  # it may close a block around, as deep


def _closes(line: str, header: str, closers: tuple[str, ...]) -> bool:
    """Whether the line closes what the header opens."""
    if line[:1] in OPENER_OF:
        opener = OPENER_OF[line[0]]
        return header.count(opener) > header.count(line[0])
    if tag := _CLOSING_TAG.match(line):
        return f"<{tag.group(1)}" in header
    return line.startswith(closers)


def end_with_block(insertion: Insertion, context: CursorContext) -> Insertion:
    """The text as far as the stop rule lets it go."""
    end, _ = find_stop(insertion.text, stop_rule(context), final=True)
    return insertion.with_text(insertion.text[:end])
