"""Brackets and strings of a text: those that close what was never opened, and those that never end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lsp_server.languages import language

_OPENER_OF = {")": "(", "]": "[", "}": "{"}
CLOSERS = frozenset(_OPENER_OF)
_QUOTES = "\"'`"

# So many characters decide whether a token begins where they do: the longest is a character of Rust's, '\u{10ffff}'.
_LOOK_AHEAD = 12


class Faults(NamedTuple):
    """What is out of balance."""

    closers: int  # that close nothing
    strings: int  # that never end
    openers: int  # that are not closed, or only by closers that reach past them


@dataclass(slots=True)
class _Count:
    """The faults of the tokens that were taken so far, and which brackets stand open after them."""

    closers: int = 0
    strings: int = 0
    openers: int = 0
    opened: list[str] = field(default_factory=list)

    def take(self, tokens: Iterable[str]) -> None:
        """Count on; a closer reaches past openers of other kinds to its own."""
        for token in tokens:
            if token in _OPENER_OF:
                if _close(self.opened, _OPENER_OF[token]):
                    self.openers -= 1
                else:
                    self.closers += 1
            elif token in "([{":
                self.opened.append(token)
                self.openers += 1
            elif token[0] in _QUOTES and (len(token) == 1 or token[-1] != token[0]):
                self.strings += 1

    def with_more(self, tokens: Iterable[str]) -> Faults:
        """The faults with these tokens too, which are not taken."""
        copy = _Count(self.closers, self.strings, self.openers, self.opened[:])
        copy.take(tokens)
        return Faults(copy.closers, copy.strings, copy.openers)


class Balance:
    """The faults of a text of two parts, `before` and `behind`, and of what it becomes when more is put between them.

    What a key changes is little, so little is looked at again: tokens that end well before the place stay,
    and from the first behind it that begins where one began, all of them are those that were there.
    """

    def __init__(self, before: str, behind: str, language_id: str) -> None:
        self._before, self._behind = before, behind
        self._pattern = language(language_id).tokens
        matches = list(self._pattern.finditer(before + behind))
        settled = [match for match in matches if match.end() <= len(before) - _LOOK_AHEAD]
        self._resume = settled[-1].end() if settled else 0
        self._settled = _Count()
        self._settled.take(match.group() for match in settled)
        rest = matches[len(settled) :]
        self._rest = [match.group() for match in rest]
        self._begin = {match.start() - len(before): index for index, match in enumerate(rest)}
        self.now = self._settled.with_more(self._rest)

    def with_text(self, text: str, replaced: int = 0) -> Faults:
        """The faults with `text` between the parts, in place of the first `replaced` code points behind it."""
        changed = self._before + text + self._behind[replaced:]
        behind = len(self._before) + len(text) - replaced  # where `behind` would begin now, if all of it were there
        tokens: list[str] = []
        for match in self._pattern.finditer(changed, self._resume):
            same = self._begin.get(match.start() - behind) if match.start() >= behind + replaced else None
            if same is not None:
                tokens += self._rest[same:]
                break
            tokens.append(match.group())
        return self._settled.with_more(tokens)


def faults(text: str, language_id: str) -> Faults:
    """The faults of a text. Where little will be put into it, a `Balance` answers faster the second time."""
    return _Count().with_more(language(language_id).tokens.findall(text))


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
