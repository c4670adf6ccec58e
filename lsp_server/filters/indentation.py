"""The filters of white space: the document's steps where they are plain, nothing trailing, its line ends."""

from __future__ import annotations

import re
import tokenize
from io import StringIO

from lsp_server.documents.languages import BODY_OPENERS, Language, indent_unit, leading_space
from lsp_server.filters.cursor_context import CursorContext, Insertion

_COMMENTS = ("#", "//", "/*", "--", ";")
_BEGINS_STATEMENT = re.compile(r"[^\W\d]|@")  # in Python; a closing bracket goes on with one
_EXPRESSION = re.compile(r"(?:[(\[,=?:]\s*|\breturn\s*)\{$|=>$")  # what a header of a value's lines ends with
_NO_SPACE_BEFORE = frozenset(",;:.)]}")


def drop_doubled_space(insertion: Insertion, context: CursorContext) -> Insertion:
    """Drop the space that the text begins with behind a space of the line."""
    before, text = context.before, insertion.text
    if before.strip() and before[-1].isspace() and text.startswith(" ") and not text.lstrip().startswith(_COMMENTS):
        return insertion.with_text(text.lstrip(" "))
    return insertion


def use_document_steps(insertion: Insertion, context: CursorContext) -> Insertion:
    """Indent the later lines by the document's tabs or step of spaces, if all of them have another, single step.

    A document without indented lines, or with several steps, leaves the text as it is, and so does a language in which
    columns are syntax. Two steps stay two in an expression, which many styles continue so.
    """
    first, *more = insertion.text.split("\n")
    filled = [line for line in more if line.strip()]
    if not filled or context.language.spaced:
        return insertion
    theirs = _their_step(first, filled, context)
    unit = indent_unit((*context.lines_above, context.before + "x", *context.lines_below)) if theirs else ""
    if not unit or theirs == unit or (theirs == 2 * unit and not _opens_statements(context.before + first, context.language)):
        return insertion
    base = leading_space(context.before + first)
    if not all(leading_space(line).removeprefix(base).replace(theirs, "") == "" for line in filled):
        return insertion
    lines = (_with_unit(line, base, theirs, unit) for line in more)
    return insertion.with_text("\n".join([first, *lines]))


def _their_step(first: str, filled: list[str], context: CursorContext) -> str:
    """The step of the text's body below its header: a tab, or spaces; empty if that is unknown."""
    header = (context.before + first).rstrip()
    base, space = leading_space(header), leading_space(filled[0])
    if not header.endswith(BODY_OPENERS) or not space.startswith(base):
        return ""
    step = space.removeprefix(base)
    return step if step == "\t" or re.fullmatch(" {2}| {4}| {8}", step) else ""


def _opens_statements(header: str, known: Language) -> bool:
    """Whether the body below is statements, rather than the rest of an expression or of a signature."""
    header = header.strip()
    if header.endswith(":"):
        return known.ends_by_depth or header.startswith(known.labels)
    return not _EXPRESSION.search(header)


def _with_unit(line: str, base: str, theirs: str, unit: str) -> str:
    if not line.strip() or not leading_space(line).startswith(base):
        return line
    steps = len(leading_space(line).removeprefix(base)) // len(theirs)
    return base + unit * steps + line.lstrip()


def end_before_broken_dedent(insertion: Insertion, context: CursorContext) -> Insertion:
    """Python: end before a line that dedents to a depth that no open block has."""
    if context.language_id != "python" or "\n" not in insertion.text:
        return insertion
    lines = context.lines_above
    begins = (index for index in range(len(lines) - 1, -1, -1) if _BEGINS_STATEMENT.match(lines[index]))
    head = lines[next(begins, 0) :]
    broken = _broken_line("".join(head) + context.before + insertion.text) - len(head)
    if broken < 1:  # none, or the document's own
        return insertion
    return insertion.with_text("\n".join(insertion.text.split("\n")[:broken]))


def _broken_line(code: str) -> int:
    """The index of the line that Python's tokenizer refuses for its depth; -1 if it finds none."""
    try:
        for _ in tokenize.generate_tokens(StringIO(code).readline):
            pass
    except IndentationError as error:
        return (error.lineno or 0) - 1
    except (SyntaxError, tokenize.TokenError):
        pass  # the text may end anywhere
    return -1


def drop_trailing_space(insertion: Insertion, context: CursorContext) -> Insertion:
    """Drop white space and blank lines at the end, but keep the space before a following word or operator."""
    text = insertion.text.rstrip()
    behind = context.after[:1]
    is_closer = behind in _NO_SPACE_BEFORE or behind in context.hidden_here
    if text and behind.strip() and not is_closer and insertion.text[len(text) :].startswith(" "):
        text += " "
    return insertion.with_text(text)


def use_line_ends(insertion: Insertion, context: CursorContext) -> Insertion:
    """Replace \\n by the document's own line ends."""
    return insertion.with_text(insertion.text.replace("\n", context.line_end))
