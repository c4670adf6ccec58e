"""The end of a text by a stop rule; the core applies it while a text grows, the language server to what it receives."""

from __future__ import annotations

import re

from protocol.messages import StopRule

_NEWLINE = re.compile(r"[\r\n]")
_LINE_BEGIN = re.compile(r"[\r\n]([^\S\r\n]*)(?=\S)")
_OPENERS = "([{"
_CLOSERS = ")]}"
HEREDOC = "<<"
"""What a quote begins with that opens a heredoc."""
# Up to the line of its word, or only as far as the word if that line is yet to come. Where a shift may have a variable there,
# a word that is neither quoted nor marked begins with a capital.
_HEREDOC = (
    r"""(?<![<\d)\]])(?:%s)(?:[-~]?["'`\\]|[-~](?=\w)|%s)(?P<word>[A-Za-z_]\w{0,50}\b)"""
    r"""(?:.*?[\r\n][^\S\r\n]*(?P=word)\b|(?P<goes_on>))"""
)
_ARITHMETIC = r"\(\([^\r\n]{0,200}?\)\)"  # of shells, where `<<` shifts


def columns(white_space: str, tab_columns: int = 4) -> int:
    """Width of white space in columns; a tab counts up to the next multiple of `tab_columns`."""
    return len(white_space.expandtabs(tab_columns)) if "\t" in white_space else len(white_space)


def find_stop(text: str, rule: StopRule, resume_at: int = 0, *, final: bool = False) -> tuple[int | None, int]:
    """The end of the completion `text`, or None if it may continue, and the `resume_at` for the grown text.

    A line counts once it shows whether it belongs to the block: at its first character that is no white space, and a
    closing line at its end. `final` says that the text grows no more.
    """
    indent = _indent(text, rule)
    if rule.indent is None or rule.one_line:
        newline = _NEWLINE.search(text, 0 if rule.one_line else resume_at)
        if newline is None:
            return None, len(text) if rule.indent is None else 0
        if rule.indent is None or text[: newline.start()].strip():
            return newline.start(), newline.start()
    for begin in _LINE_BEGIN.finditer(text, resume_at):
        lacks = indent - columns(begin.group(1), rule.tab_columns)
        if lacks > 0 and not (rule.quotes and _is_quoted(text[: begin.start()], rule, indent)):
            joining = rule.depthless if lacks > 1 else rule.depthless + rule.joining
            end = _Line(text, begin.end()).end(rule.closers, joining, final=final)
            if end is None:
                return None, begin.start()
            if end >= 0:
                return end, begin.start()
            if end == _LEAVES:
                return len(text[: begin.start()].rstrip()), begin.start()
        resume_at = begin.end()
    return None, resume_at


def _indent(text: str, rule: StopRule) -> int:
    """The columns of the block: fewer than the rule's where the cursor's line opens it and its first line is less deep.

    A header of several lines ends with one that is aligned, often deeper than the body; a namespace's body may be at
    the margin, that of a header without a bracket is not.
    """
    indent = rule.indent or 0
    if not rule.opens or not text.lstrip(" \t").startswith(("\r", "\n")):
        return indent
    lines = (line for line in _LINE_BEGIN.finditer(text) if not text.startswith(rule.depthless, line.end()))
    first = next(lines, None)
    if first is None or text[first.end()] in _CLOSERS:
        return indent
    depth = columns(first.group(1), rule.tab_columns)
    joins = depth == indent - 1 and any(begins_with(text[first.end() :], beginning) for beginning in rule.joining)
    return indent if joins or (rule.one_line and not depth) else min(indent, depth)


def _is_quoted(text: str, rule: StopRule, indent: int) -> bool:
    """Whether what follows `text` stands in a string that it opens, none of whose lines was as deep as the block.

    One with such a line, as a docstring, is as deep as its block to its end. All of a heredoc's lines do.
    """
    text = rule.opened + text
    opened = _last_opened(text, rule.quotes)
    if opened is None or opened.group().startswith(HEREDOC):
        return opened is not None
    return all(columns(line.group(1), rule.tab_columns) < indent for line in _LINE_BEGIN.finditer(text, opened.end()))


def _last_opened(text: str, quotes: tuple[str, ...]) -> re.Match[str] | None:
    """The quote that opens a string in `text` which does not end there. A backslash escapes a quote."""
    opened = None
    patterns = [r"\\.", *(re.escape(quote) for quote in quotes if not quote.startswith(HEREDOC))]
    if operators := [re.escape(quote) for quote in quotes if quote.startswith(HEREDOC)]:
        has_shift = HEREDOC in quotes and f"{HEREDOC} " not in quotes  # a space would make one of the other
        patterns += [_ARITHMETIC, _HEREDOC % ("|".join(operators), "(?=[A-Z_])" if has_shift else "")]
    for found in re.finditer("|".join(patterns), text, re.DOTALL):
        if found.lastgroup == "goes_on":
            return opened or found
        if opened is None and found.group() in quotes:
            opened = found
        elif opened is not None and found.group() == opened.group():
            opened = None
    return opened


def opened_at_end(text: str, quotes: tuple[str, ...]) -> str:
    """What opens the string or heredoc that `text` ends in, as `StopRule.opened` has it; empty if there is none."""
    opened = _last_opened(text, quotes)
    return "" if opened is None else opened.group() + ("\n" if "\n" in text[opened.end() :] else " ")


def begins_with(line: str, beginning: str, *, grows: bool = False) -> bool:
    """Whether the line begins so; a word must end there, which a line that `grows` shows by a character behind it."""
    if not line.startswith(beginning):
        return False
    behind = line[len(beginning) : len(beginning) + 1]
    return not beginning[-1:].isalnum() or not (behind.isalnum() or behind == "_" or (grows and not behind))


_LEAVES = -1  # the line does not belong to the block
_JOINS = -2  # the line belongs to the block, which goes on


class _Line:
    """A line of a growing text that is indented by less than the block."""

    def __init__(self, text: str, begin: int) -> None:
        newline = _NEWLINE.search(text, begin)
        self._begin = begin
        self._is_whole = newline is not None
        self._code = text[begin : newline.start() if newline else len(text)]

    def end(self, closers: tuple[str, ...], joining: tuple[str, ...], *, final: bool) -> int | None:
        """The end of the block in this line, _LEAVES, _JOINS, or None if that is not known yet."""
        grows = not self._is_whole and not final
        if any(begins_with(self._code, beginning, grows=grows) for beginning in joining):
            return _JOINS
        closed = max((len(closer) for closer in closers if begins_with(self._code, closer)), default=0)
        if closed:
            return None if grows else self._begin + self._kept(closed)
        undecided = grows and any(word.startswith(self._code.rstrip()) for word in (*closers, *joining))
        return None if undecided else _LEAVES

    def _kept(self, closed: int) -> int:
        """The characters up to the line's end, or up to where it opens a bracket that it does not close."""
        opened: list[int] = []
        for place, character in enumerate(self._code):
            if character in _OPENERS:
                opened.append(place)
            elif character in _CLOSERS and opened:
                opened.pop()
        kept = self._code[: opened[0]] if opened and self._is_whole else self._code
        return max(closed, len(kept.rstrip()))
