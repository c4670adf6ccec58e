"""Brackets and strings of a text: those that close what was never opened, and those that never end."""

from __future__ import annotations

from typing import NamedTuple

from lsp_server.languages import language

_OPENER_OF = {")": "(", "]": "[", "}": "{"}
CLOSERS = frozenset(_OPENER_OF)
_QUOTES = "\"'`"


class Faults(NamedTuple):
    """What is out of balance."""

    closers: int  # that close nothing
    strings: int  # that never end
    openers: int  # that are not closed, or only by closers that reach past them


def faults(text: str, language_id: str) -> Faults:
    """The faults of `text`; a closer reaches past openers of other kinds to its own."""
    opened: list[str] = []
    closers = strings = openers = 0
    for match in language(language_id).tokens.finditer(text):
        token = match.group()
        if token in _OPENER_OF:
            if _close(opened, _OPENER_OF[token]):
                openers -= 1
            else:
                closers += 1
        elif token in "([{":
            opened.append(token)
            openers += 1
        elif token[0] in _QUOTES and (len(token) == 1 or token[-1] != token[0]):
            strings += 1
    return Faults(closers, strings, openers)


def closes_unopened(text: str, language_id: str) -> int | None:
    """Where `text` first closes a bracket that it has not opened, or None."""
    opened: list[str] = []
    for match in language(language_id).tokens.finditer(text):
        token = match.group()
        if token in _OPENER_OF and not _close(opened, _OPENER_OF[token]):
            return match.start()
        if token in "([{":
            opened.append(token)
    return None


def _close(opened: list[str], opener: str) -> bool:
    """Take back the last `opener`, and what was opened since; False if there is none."""
    if opener not in opened:
        return False
    while opened.pop() != opener:
        pass
    return True
