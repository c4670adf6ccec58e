"""Filters of repetitions: closers behind the cursor, and text that the document has on its line or below it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lsp_server.documents.languages import Language, indentation
from lsp_server.documents.lexing import (
    APOSTROPHE,
    CLOSER_OF,
    CLOSING,
    MOST_CHARS,
    OPENER_OF,
    QUOTES,
    code_brackets,
    lexed_brackets,
)
from lsp_server.filters.cursor_context import CursorContext, Insertion, word_characters
from protocol.stopping import begins_with, columns

# A closing bracket, or the quotes that end a string.
_HIDDEN = re.compile(r"[)\]}]|\"+|'+|`+")


def close_hidden(insertion: Insertion, context: CursorContext) -> Insertion:
    """Let the text replace the closers behind the cursor that the model has written, since the prompt hid them.

    A text that reaches a hidden closer of a line below ends before it.
    """
    wanted = [found.group() for found in _HIDDEN.finditer(context.hidden)]
    closed = _closed(insertion.text, wanted, context.before, has_escapes=True)
    if len(closed) < len(wanted) and not insertion.is_cut:  # a backslash may escape nothing
        readings = insertion.text, _brackets_alone(insertion.text, wanted, context)
        closed = max(closed, *(_closed(text, wanted, context.before, has_escapes=False) for text in readings), key=len)
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
            closed.append(index + quotes[0])
            index += quotes[0] + len(want) * (1 + is_triple)
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


def _brackets_alone(text: str, wanted: list[str], context: CursorContext) -> str:
    """`text` with spaces for all but its brackets that stand, as a lexer says, in code; or not, as the cursor's opener.

    Empty where quotes show what is a literal, and if some are wanted.
    """
    begin, line = len(context.before), context.before + text
    if not context.language.needs_lexer or len(line) > MOST_CHARS or not OPENER_OF.keys() >= set(wanted):
        return ""
    brackets = list(lexed_brackets(line, context.language_id))
    opener = OPENER_OF[wanted[0]]
    at_cursor = next((is_code for place, one, is_code in reversed(brackets) if place < begin and one == opener), True)
    alone = {place: one for place, one, is_code in brackets if is_code == at_cursor}
    return "".join(alone.get(place, " ") for place in range(begin, len(line)))


def _quotes(text: str, quote: str, *, has_escapes: bool) -> list[int]:
    """Where the text has this quote; an escaped one, and an apostrophe in a word, is none."""
    skipped = (r"\\.|" if has_escapes else "") + f"{APOSTROPHE.pattern}|"
    return [found.start() for found in re.finditer(f"{skipped}({re.escape(quote)})", text, re.DOTALL) if found.group(1)]


_FORMULA_EDGE = re.compile(r"\\.|(\$)", re.DOTALL)
_FORMULA_END = re.compile(r"\$(?![\w\\({$])")


def close_formula(insertion: Insertion, context: CursorContext) -> Insertion:
    """Replace the `$` behind the cursor if the text closes the line's formula, and does not open another one."""
    place = insertion.replaced
    is_odd = [sum(map(bool, _FORMULA_EDGE.findall(text))) % 2 for text in (context.before, insertion.text)]
    if context.language.has_formulas and all(is_odd) and _FORMULA_END.match(context.after, place):
        return replace(insertion, replaced=place + 1)
    return insertion


_MEMBER = re.compile(r"(?:\?\.|\.|->|::)\w")


def drop_statement_end(insertion: Insertion, context: CursorContext) -> Insertion:
    """End before a `;` where the document goes on with a member of what the text writes, as behind `f(║).g()`."""
    if insertion.text.endswith(";") and _MEMBER.match(context.after, insertion.replaced):
        return insertion.with_text(insertion.text[:-1].rstrip())
    return insertion


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
    """End before a bracket that the document has next, if the document would have one of its kind too many.

    Behind a closer that the text replaces, it may stand further on in the line.
    """
    text, rest = insertion.text, context.after[insertion.replaced :]
    closer = (rest.lstrip() or next(iter(context.filled_below), "").lstrip())[:1]
    if insertion.replaced and closer not in OPENER_OF:
        closer = _first_closed(rest, context.language_id)
    if not context.language.balanced or closer not in OPENER_OF or closer not in text:
        return insertion
    opener = OPENER_OF[closer]
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
        elif closed == wanted and not _closes_deeper_block(text[:place], context):
            shorter = close_hidden(insertion.with_text(text[:place].rstrip()), context)  # it may have lost closers
            return replace(shorter, replaced=min(insertion.replaced, shorter.replaced))
        else:
            closed += 1
    return insertion


def _first_closed(rest: str, language_id: str) -> str:
    """The first bracket that closes what `rest` has not opened; empty if there is none."""
    opened = 0
    for _, one in code_brackets(rest, language_id):
        opened += 1 if one in CLOSER_OF else -1
        if opened < 0:
            return one
    return ""


def _closes_deeper_block(before: str, context: CursorContext) -> bool:
    """Whether a bracket behind `before` begins a line deeper than the next one, in a document too long to be lexed.

    Brackets in strings and comments are counted there, so that the document may seem to have one too many.
    """
    newline = before.rfind("\n")
    if newline < 0 or before[newline:].strip() or context.after.strip() or not context.is_too_long_to_lex:
        return False
    width = context.tab_columns
    return columns(before[newline + 1 :], width) > indentation(context.filled_below[0], width)


def _lacking_in_code(context: CursorContext, closer: str) -> int:
    """How many of these brackets a short document has too few, outside of comments and literals; 0 for a long one."""
    if context.is_too_long_to_lex:
        return 0
    brackets = [one for _, one in code_brackets("".join(context.document), context.language_id)]
    return brackets.count(OPENER_OF[closer]) - brackets.count(closer)


_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*+)(?![^<>]*/>)")
_QUOTED_OR_END = re.compile(r"\"[^\"]*\"?|'[^']*'?|(?<!=)(>)")


def drop_surplus_tags(insertion: Insertion, context: CursorContext) -> Insertion:
    """End before a tag that closes what the rest of the line closes, or before the end of the cursor's tag, if it has one."""
    text, before, rest = insertion.text, context.before, context.after[insertion.replaced :]
    behind = {name for slash, name in _TAG.findall(rest) if slash}
    spare = _opened(before + rest) if behind else Counter[str]()
    in_text = _opened(text) if behind else spare
    surplus = {name for name in behind if spare[name] >= 0 > spare[name] + in_text[name]}
    for tag in _TAG.finditer(text) if surplus else ():
        slash, name = tag.groups()
        spare[name] += -1 if slash else 1
        if name in surplus and spare[name] < 0:
            end = tag.start()
            if rest.lstrip().startswith((">", "/>")):
                inside = before[before.rfind("<") :]
                ends = (found.start(1) - len(inside) for found in _QUOTED_OR_END.finditer(inside + text) if found.group(1))
                end = next((place for place in ends if place >= 0), end)
            return close_hidden(insertion.with_text(text[:end].rstrip()), context)
    return insertion


def _opened(text: str) -> Counter[str]:
    """By name, how many tags are opened and not closed; below 0 if more are closed."""
    opened = Counter[str]()
    for slash, name in _TAG.findall(text):
        opened[name] += -1 if slash else 1
    return opened


_SAYS_ENOUGH = 3  # word characters, of a text that one match suffices for
_COINCIDENCE = 3  # lines that are repeated one after the other are no coincidence, even if others follow
_CLOSING_TAG = re.compile(r"\s*</([\w:.-]+)")
_FIRST_WORD = re.compile(r"\s*(\w+)")


def drop_rest_of_line(insertion: Insertion, context: CursorContext) -> Insertion:
    """Cut where the suggestion repeats the rest of the line, or ends with its beginning.

    Closing brackets and quotes alone are no overlap, nor is a tag or word that closes what the suggestion has opened.
    """
    text, rest = insertion.text, context.after[insertion.replaced :]
    if not rest.strip() or "\n" in text or insertion.replaced < len(context.hidden_here.rstrip()):
        return insertion  # without a closer that is still to come, the rest of the line is not reached
    end = _overlap(text, rest, context.language)
    says_all = end is not None and text.startswith(rest.strip(), end)
    if insertion.replaced and not says_all and _rewrites(text, context.after[insertion.replaced - 1], rest):
        return replace(insertion, replaced=len(context.after))
    if end is None:
        return insertion
    shorter = insertion.with_text(text[:end].rstrip() if rest[0].isspace() else text[:end])
    return close_hidden(shorter, context)  # again: it may have lost closers


def _overlap(text: str, rest: str, known: Language) -> int | None:
    """Where `text` begins to say `rest`, whole or up to the text's own end; None if it does not."""
    said = rest.strip()
    for place in range(len(text)):
        repeats = text.startswith(said, place) or said.startswith(text[place:])
        piece = text[place : place + len(said)]
        if not repeats or all(one in CLOSING or one.isspace() for one in piece):
            continue
        if len(piece) == len(text) - place or word_characters(said) >= _SAYS_ENOUGH:
            whole = _is_boundary(text, place) and _is_boundary(said, len(piece))
            whole = whole and _is_boundary(text, place + len(piece))
            if whole and not _closes_own(text[:place], piece, known):
                return place
    return None


def _is_boundary(text: str, place: int) -> bool:
    """Whether no word goes on from before `place` to behind it."""
    if not 0 < place < len(text):
        return True
    return not (_is_of_word(text[place - 1]) and _is_of_word(text[place]))


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _closes_own(before: str, piece: str, known: Language) -> bool:
    """Whether the piece begins with the tag or word that closes what `before` has opened."""
    if tag := _CLOSING_TAG.match(piece):
        name = re.escape(tag.group(1))
        opened = len(re.findall(rf"<{name}\b(?![^<>]*/>)", before))
        return opened > len(re.findall(rf"</{name}\b", before))
    word = _FIRST_WORD.match(piece)
    if word is None or not known.openers or word.group(1) not in known.closers:
        return False
    closed = sum(len(re.findall(rf"\b{re.escape(closer)}\b", before)) for closer in known.closers)
    return len(re.findall(known.openers, before)) > closed


def _rewrites(text: str, closer: str, rest: str) -> bool:
    """Whether the text, behind the closer that it replaces, says the rest of the line with more text within."""
    said, tail = rest.strip(), text.partition(closer)[2]
    ends = (cut for cut in range(1, len(said)) if tail.startswith(said[:cut]) and tail.endswith(said[cut:]))
    return len(tail) >= len(said) and any(word_characters(said[cut:]) for cut in ends)


def cut_at_next_lines(insertion: Insertion, context: CursorContext) -> Insertion:
    """Cut where the suggestion goes on as the document does below, to its end or for several lines.

    Lines are equal with their indentation; the last line of a cut text may be incomplete. A line that the user has
    begun, or that stands above, too, is no repetition.
    """
    below, before = context.filled_below, context.before
    lines = (context.before + insertion.text + context.after[insertion.replaced :]).split("\n")
    for index, line in enumerate(lines):
        if not line.strip() or (index == 0 and (before.strip() or context.filled_above[-1:] == (line.rstrip(),))):
            continue  # the user is typing this line, or it is one of several
        if below and _goes_on_below(lines[index:], below, context.language.all_closers, is_cut=insertion.is_cut):
            return insertion.with_text("\n".join(lines[:index])[len(before) :] if index else "")
    return insertion


def _goes_on_below(lines: list[str], below: Sequence[str], closers: tuple[str, ...], *, is_cut: bool) -> bool:
    suggested = [line.rstrip() for line in lines if line.strip()]
    equal = 0
    for line, known in zip(suggested, below, strict=False):
        begins = is_cut and equal == len(suggested) - 1 and known.startswith(line)
        if line != known and not begins:
            break
        equal += 1
    if not equal or (equal < len(suggested) and equal < _COINCIDENCE):
        return False
    first = suggested[0].lstrip()
    says_enough = word_characters(first) >= _SAYS_ENOUGH and not any(begins_with(first, closer) for closer in closers)
    return equal > 1 or says_enough
