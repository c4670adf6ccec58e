"""Ends of a suggestion: the stop rule, the end of a block, and what a limit has cut: loops, lines and words."""

from __future__ import annotations

import re

from lsp_server.documents.languages import CLOSES, OPENS, indentation, leading_space
from lsp_server.documents.lexing import CLOSER_OF, OPENER_OF
from lsp_server.filters.cursor_context import CursorContext, Insertion
from protocol.messages import StopRule
from protocol.stopping import HEREDOC, begins_with, find_stop, opened_at_end

_OPENERS = ("(", "[", "{")
_CLOSING_TAG = re.compile(r"</([\w:.-]+)")
_EMBEDDED = re.compile(  # the header of a script in a document of another language, whose keys end with a colon
    r"^\s*(?:local )?(?:begin|case|class|defmodule|defp?|for|function|if|macro|module|struct|unless|until|while)\b(?!:)"
    r"|\b(?:then|else|do(?: \|.*\|)?|function\b[^()]*\([^()]*\))$"
)
_COMMENT = re.compile(r"(?:^|\s)#")  # of the languages that have heredocs


def stop_rule(context: CursorContext) -> StopRule:
    """The rule for a completion at the cursor.

    A blank line takes a block of its own depth or deeper. The end of a line takes the rest of that line, or, if the
    model goes on in the next line, the block of deeper lines; behind an opening bracket both. All other places take
    the rest of the line, including the inside of brackets that the editor closed: a block would push the closers down.
    """
    if not context.multi_line or context.after.strip():
        return StopRule()
    depth, known = indentation(context.before, context.tab_columns), context.language
    header = context.before.rstrip()
    is_blank = not header
    opened, quotes = _strings(context)
    return StopRule(
        indent=depth if is_blank else depth + 1,
        one_line=not is_blank and not header.endswith(_OPENERS),
        opens=not is_blank and header.endswith(_OPENERS + ((":",) if known.ends_by_depth and not known.spaced else ())),
        closers=_lacking_closers(context, depth),
        joining=() if is_blank else _joining(context),
        depthless=known.depthless,
        quotes=quotes,
        opened=opened,
        tab_columns=context.tab_columns,
    )


def _joining(context: CursorContext) -> tuple[str, ...]:
    """What continues the block of the cursor's line though it is no deeper; a label ends that of another one."""
    known = context.language
    is_label = context.before.lstrip().startswith(known.labels)
    return known.joining if is_label else known.joining + known.labels


def _strings(context: CursorContext) -> tuple[str, tuple[str, ...]]:
    """What is open at the cursor of a string of several lines, and the quotes by which the text opens its own.

    A quote above that seems to be open may stand in a comment: then no string is known.
    """
    quotes, above, before = context.language.quotes, context.counts.above, context.before
    if any(quote.startswith(HEREDOC) for quote in quotes):
        return _heredoc(context), quotes
    if not any((above[quote] + before.count(quote)) % 2 for quote in quotes):
        return "", quotes
    opened = "" if any(above[quote] % 2 for quote in quotes) else opened_at_end(before, quotes)
    return opened, quotes if opened else ()


def _heredoc(context: CursorContext) -> str:
    """The heredoc that the nearest line with one leaves open at the cursor."""
    lines = (*context.lines_above, context.before)
    code = [_COMMENT.split(line, maxsplit=1)[0] for line in lines]
    first = next((index for index in reversed(range(len(lines))) if HEREDOC in code[index]), None)
    if first is None:
        return ""
    return opened_at_end("".join(lines[first:]), context.language.quotes)


def _lacking_closers(context: CursorContext, depth: int) -> tuple[str, ...]:
    """What the closing line may begin with of the block around the cursor's blank line, or of the one that its line opens.

    Nothing if a line below is that line.
    """
    header, width, known = context.before, context.tab_columns, context.language
    if not header.strip():
        above = (line for line in reversed(context.filled_above) if indentation(line, width) < depth)
        header = next(above, "")
        depth = indentation(header, width)
    header = header.rstrip()
    closers = known.all_closers + (known.closers if known.ends_by_depth and _EMBEDDED.search(header) else ())
    line = next((line for line in context.filled_below if indentation(line, width) <= depth), "")
    has_one = indentation(line, width) == depth and _closes(line.lstrip(), header, closers)
    return () if has_one and not _is_lacking(line, context) else closers  # it may close a block around, as deep


def _is_lacking(line: str, context: CursorContext) -> bool:
    """Whether the document has too few of the bracket that the line begins with, or at its depth of its closing word.

    A module's words stand often as deep as those of its functions.
    """
    counts, space, bracket = context.counts.whole, leading_space(line), line.lstrip()[:1]
    if bracket in OPENER_OF or not context.language.openers:
        return context.lacking.get(bracket, 0) > 0
    return counts[space, OPENS] > counts[space, CLOSES]


def _closes(line: str, header: str, closers: tuple[str, ...]) -> bool:
    """Whether the line closes what the header opens."""
    if line[:1] in OPENER_OF:
        opener = OPENER_OF[line[0]]
        return header.count(opener) > header.count(line[0])
    if tag := _CLOSING_TAG.match(line):
        return f"<{tag.group(1)}" in header
    surplus = ((header.count(one) - header.count(other), line.count(other) - line.count(one)) for one, other in CLOSER_OF.items())
    if any(opened > max(0, closed) for opened, closed in surplus):
        return False  # a word closes no bracket
    ends_in_word = header[-1:].isalnum()  # as `do` and `else`: `;;` closes none of them
    return any(begins_with(line, closer) for closer in closers if closer[-1].isalnum() or not ends_in_word)


def end_with_block(insertion: Insertion, context: CursorContext) -> Insertion:
    """The text as far as the stop rule lets it go, without a closing line that the document has next."""
    rule = stop_rule(context)
    end, _ = find_stop(insertion.text, rule, final=True)
    text, newline, last = insertion.text[:end].rpartition("\n")
    if newline and _closes_twice(last, text, rule, context):
        return insertion.with_text(text.rstrip())
    return insertion.with_text(insertion.text[:end])


def _closes_twice(line: str, above: str, rule: StopRule, context: CursorContext) -> bool:
    """Whether the line that ends the text closes what stands around its block, and the document's next line does.

    The line closes something else if the document lacks this bracket, or if the text above opens one.
    """
    bracket = line.lstrip()[:1]
    opener = OPENER_OF.get(bracket)
    return (
        context.filled_below[:1] == (line.rstrip(),)
        and indentation(line, rule.tab_columns) < (rule.indent or 0)
        and any(begins_with(line.lstrip(), closer) for closer in rule.closers)
        and not _is_lacking(line, context)
        and (opener is None or above.count(opener) <= above.count(bracket))
    )


_LONGEST_PIECE = 240  # characters that a loop repeats
_LEAST_LOOP = 12  # characters of a loop
# A word, or a number with its digits' separators, fraction, exponent and sign of the exponent.
_TOKEN = re.compile(r"\d[\w.']*(?:(?<=[eE])[+-]\d+)?|\w+")


def is_within_token(text: str, place: int) -> bool:
    """Whether `place` lies inside of a word or a number."""
    if not 0 < place < len(text):
        return False
    begin = place
    while begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] in "_.'+-"):
        begin -= 1
    tokens = _TOKEN.finditer(text, begin)
    return any(token.start() < place < token.end() for token in tokens)


def end_loop(insertion: Insertion, _context: CursorContext) -> Insertion:
    """Keep one of the pieces that the text repeats until the limit cuts it: the model was in a loop.

    Digits and letters that repeat themselves within one number or word are none.
    """
    text = insertion.text
    if not insertion.is_cut:
        return insertion
    backwards = text[::-1]
    for length in range(1, min(_LONGEST_PIECE, len(text) // 2) + 1):
        if backwards[0] == backwards[length]:
            repeated = _common_length(backwards, backwards[length:])
            end, is_loop = len(text) - repeated, repeated >= 1.4 * length and repeated + length >= _LEAST_LOOP
            if is_loop and not is_within_token(text, end):
                return insertion.with_text(text[:end])
    return insertion


def _common_length(text: str, other: str) -> int:
    """The length of the text that both begin with."""
    return next((index for index, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))


def end_with_whole_statement(insertion: Insertion, _context: CursorContext) -> Insertion:
    """Drop lines from the end of a cut text until it leaves no bracket open and no header without a body.

    The first line with text stays: it is what the user would type next, whole or not.
    """
    if not insertion.is_cut:
        return insertion
    lines = insertion.text.split("\n")
    first = next((number for number, line in enumerate(lines, 1) if line.strip()), len(lines))
    while len(lines) > first and _is_half(lines):
        lines.pop()
    return insertion.with_text("\n".join(lines))


def _is_half(lines: list[str]) -> bool:
    last = lines[-1].strip()
    return not last or last.endswith(":") or last.startswith("@") or _leaves_open("\n".join(lines))


def _leaves_open(text: str) -> bool:
    opened: list[str] = []
    for character in text:
        if character in "([{":
            opened.append(character)
        elif character in OPENER_OF and opened and opened[-1] == OPENER_OF[character]:
            opened.pop()
    return bool(opened)
