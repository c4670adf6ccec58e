"""The filters that cut what the document has already: on the cursor's line, or below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from lsp_server.editing.brackets import CLOSING
from lsp_server.editing.languages import Language
from lsp_server.filters.closers import close_hidden
from lsp_server.filters.cursor_context import CursorContext, Insertion, word_characters

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
    says_enough = word_characters(suggested[0]) >= _SAYS_ENOUGH and not suggested[0].lstrip().startswith(closers)
    return equal > 1 or says_enough
