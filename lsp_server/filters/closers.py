"""The filters of closing brackets and quotes that stand behind the cursor: each one closes once."""

from __future__ import annotations

import re
from dataclasses import replace

from lsp_server.editing.brackets import CLOSER_OF, CLOSING, OPENER_OF, QUOTES
from lsp_server.editing.lexing import MOST_CHARS, code_brackets
from lsp_server.filters.cursor_context import CursorContext, Insertion

# A closing bracket, or the quotes that end a string.
_HIDDEN = re.compile(r"[)\]}]|\"+|'+|`+")


def close_hidden(insertion: Insertion, context: CursorContext) -> Insertion:
    """Let the text replace the closers behind the cursor that the model has written, since the prompt hid them.

    A text that reaches a hidden closer of a line below ends before it.
    """
    wanted = [found.group() for found in _HIDDEN.finditer(context.hidden)]
    closed = _closed(insertion.text, wanted, context.before, has_escapes=True)
    if len(closed) < len(wanted) and not insertion.is_cut:  # a backslash may escape nothing
        closed = max(closed, _closed(insertion.text, wanted, context.before, has_escapes=False), key=len)
    here = [found.end() for found in _HIDDEN.finditer(context.hidden_here)]
    if len(closed) > len(here):
        insertion = insertion.with_text(insertion.text[: closed[len(here)]].rstrip())
    replaced = here[min(len(closed), len(here)) - 1] if closed and here else 0
    return replace(insertion, replaced=replaced)


def _closed(text: str, wanted: list[str], before: str, *, has_escapes: bool) -> list[int]:
    """Where `text`, which follows `before`, has, in order, the wanted closers, as far as it has them."""
    closed: list[int] = []
    opened: list[str] = []  # closers of the text's own openers, innermost last
    index = 0
    while index < len(text) and len(closed) < len(wanted):
        character, want = text[index], wanted[len(closed)]
        if want[0] in QUOTES:
            # The cursor stands in a string. A quote that closes nothing wanted, on its line nor in all of the text,
            # begins another string, which the document closes; one may hold others, with the same quotes, in `${}`.
            quotes = _quotes(text[index:], want, has_escapes=has_escapes)
            in_line = _quotes(text[index:].split("\n", 1)[0], want, has_escapes=has_escapes)
            is_open = not (len(quotes) % 2 or len(in_line) % 2) and wanted[len(closed) :].count(want) % 2
            is_triple = not index and before.endswith(want) and text.startswith(2 * want)  # with the one before it
            if not is_triple and (is_open or not quotes):
                break
            first = 0 if is_triple else quotes[0]
            closed.append(index + first)
            index += first + len(want) * (1 + is_triple)
            continue
        if character == "\\" and has_escapes:
            index += 2
            continue
        if character == want and not opened:
            closed.append(index)
        elif opened and character == opened[-1]:
            opened.pop()
        elif character in CLOSER_OF:
            opened.append(CLOSER_OF[character])
        elif character in QUOTES:
            quotes = _quotes(text[index:].split("\n", 1)[0], character, has_escapes=has_escapes)
            index += quotes[1] if quotes[:1] == [0] and len(quotes) > 1 else 0  # a single quote opens no string
        index += 1
    return closed


def _quotes(text: str, quote: str, *, has_escapes: bool) -> list[int]:
    """Where the text has this quote; an escaped one, and an apostrophe in a word, is none."""
    skipped = (r"\\.|" if has_escapes else "") + r"(?<=\w)'(?=\w)|"
    return [found.start() for found in re.finditer(f"{skipped}({re.escape(quote)})", text, re.DOTALL) if found.group(1)]


def leave_closers(insertion: Insertion, context: CursorContext) -> Insertion:
    """Leave to the document the closers that the text ends with and replaces, and the space that it has before them."""
    text, replaced = insertion.text, insertion.replaced
    for kept in range(replaced):
        closers = context.after[kept:replaced]
        if closers[0] in CLOSING and text.endswith(closers):
            left, before = text[: len(text) - len(closers)], context.after[:kept]
            is_spaced = before[-1:].isspace()
            return replace(insertion, text=left.rstrip() if is_spaced else left, replaced=len(before.rstrip()))
    return insertion


def drop_surplus_closers(insertion: Insertion, context: CursorContext) -> Insertion:
    """End before a bracket that the document has next, if the document would have one of its kind too many."""
    text = insertion.text
    behind = context.after[insertion.replaced :].lstrip() or next(iter(context.filled_below), "").lstrip()
    if not context.language.balanced or behind[:1] not in OPENER_OF or behind[0] not in text:
        return insertion
    closer, opener = behind[0], OPENER_OF[behind[0]]
    brackets = [(place, one) for place, one in code_brackets(text, context.language_id) if one in (opener, closer)]
    replaced = context.after[: insertion.replaced].count(closer)
    wanted = max(0, context.lacking[closer]) + replaced
    in_code = sum(1 if one == closer else -1 for _, one in brackets)
    if min(in_code, text.count(closer) - text.count(opener)) <= wanted:  # the lexer may take text for a string
        return insertion
    wanted = max(wanted, _lacking_in_code(context, closer) + replaced)
    opened = closed = 0
    for place, one in brackets:
        if one == opener:
            opened += 1
        elif opened:
            opened -= 1
        elif closed == wanted:
            shorter = close_hidden(insertion.with_text(text[:place].rstrip()), context)  # it may have lost closers
            return replace(shorter, replaced=min(insertion.replaced, shorter.replaced))
        else:
            closed += 1
    return insertion


def _lacking_in_code(context: CursorContext, closer: str) -> int:
    """How many of these brackets a short document has too few, outside of comments and literals; 0 for a long one."""
    if sum(map(len, context.document)) > MOST_CHARS:
        return 0
    brackets = [one for _, one in code_brackets("".join(context.document), context.language_id)]
    return brackets.count(OPENER_OF[closer]) - brackets.count(closer)
