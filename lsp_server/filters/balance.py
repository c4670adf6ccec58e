"""Counts a text's unbalanced brackets and unterminated strings, incrementally between keystrokes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import NamedTuple

from lsp_server.editing.languages import language

_OPENER_OF = {")": "(", "]": "[", "}": "{"}
CLOSERS = frozenset(_OPENER_OF)
_QUOTES = "\"'`"

# How many characters decide whether a token begins at the first of them: the longest is Rust's '\u{10ffff}'.
_LOOK_AHEAD = 12

# How many characters before the place are scanned every time, so that deleting some of them costs no more. At least
# _LOOK_AHEAD.
_UNSETTLED = 200


class Faults(NamedTuple):
    """How many tokens are out of balance."""

    closers: int  # that close nothing
    strings: int  # that never end
    openers: int  # that are not closed, or only by closers that reach past them


@dataclass(slots=True)
class _Count:
    """The faults of the tokens counted so far, and the brackets that are open after them."""

    closers: int = 0
    strings: int = 0
    openers: int = 0
    opened: list[str] = field(default_factory=list)

    def take(self, tokens: Iterable[str]) -> None:
        """Count further tokens; a closer reaches past openers of other kinds to its own."""
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

    def with_more(self, tokens: Iterable[str]) -> _Count:
        """A new count that includes these tokens; this one does not change."""
        more = _Count(self.closers, self.strings, self.openers, self.opened[:])
        more.take(tokens)
        return more

    @property
    def faults(self) -> Faults:
        return Faults(self.closers, self.strings, self.openers)


class _Found(NamedTuple):
    """The tokens of a text of two parts."""

    settled: _Count  # of tokens that end so far before the place between the parts that no insertion changes them
    resume: int  # where the last of these ends
    rest: Sequence[str]  # the tokens after them
    begins: Mapping[int, int]  # where each of the rest begins, counted from the place: its index

    def again(self, tokens: Iterable[re.Match[str]], place: int, since: int) -> tuple[list[re.Match[str]], int]:
        """The new `tokens` of a changed text, up to the first that is one of `rest`, and its index there.

        `tokens` begin at `resume`. From `since` on the text is unchanged; `place` is the place in its coordinates.
        """
        new: list[re.Match[str]] = []
        for token in tokens:
            same = self.begins.get(token.start() - place) if token.start() >= since else None
            if same is not None:
                return new, same
            new.append(token)
        return new, len(self.rest)


_NOTHING = _Found(_Count(), 0, (), {})


class Balance:
    """The faults of a text of two parts, `before` and `behind`, and of that text with an insertion between them.

    A keystroke changes little, so little is scanned again: tokens that end well before the place stay, and
    behind it the known tokens are reused from the first that begins where a known one began. The balance of an
    `earlier` text, which may be any text, is reused as far as both texts begin and end alike.
    """

    def __init__(self, before: str, behind: str, language_id: str, earlier: Balance | None = None) -> None:
        self._before, self._behind = before, behind
        self._pattern = language(language_id).tokens
        text = before + behind
        known, place = self._known_from(earlier)
        new, same = known.again(self._pattern.finditer(text, known.resume), place, max(place, len(before)))
        settled = [token for token in new if token.end() <= len(before) - _UNSETTLED]
        rest = new[len(settled) :]
        moved, renumbered = place - len(before), len(rest) - same
        kept = {begin + moved: index + renumbered for begin, index in known.begins.items() if index >= same}
        self._found = _Found(
            known.settled.with_more(token.group() for token in settled),
            settled[-1].end() if settled else known.resume,
            [*(token.group() for token in rest), *known.rest[same:]],
            {token.start() - len(before): index for index, token in enumerate(rest)} | kept,
        )
        self.now = self._found.settled.with_more(self._found.rest).faults

    def with_text(self, text: str, replaced: int = 0) -> Faults:
        """The faults with `text` between the parts, in place of the first `replaced` code points behind it."""
        found, since = self._found, len(self._before) + len(text)
        changed = self._before + text + self._behind[replaced:]
        new, same = found.again(self._pattern.finditer(changed, found.resume), since - replaced, since)
        return found.settled.with_more(chain((token.group() for token in new), found.rest[same:])).faults

    def first_surplus(self, text: str) -> int:
        """Where `text`, put between the parts, has its first surplus closer; its length if it has none.

        Every continuation beyond that place is out of balance: a surplus closer stays surplus.
        """
        place, count = len(self._before), self._found.settled.with_more(())
        tokens = self._pattern.finditer(self._before + text + self._behind, self._found.resume)
        for token in takewhile(lambda token: token.start() < place + len(text), tokens):
            count.take((token.group(),))
            if count.closers > self.now.closers:
                return max(0, token.start() - place)
        return len(text)

    def _known_from(self, earlier: Balance | None) -> tuple[_Found, int]:
        """The earlier tokens that this text shares, and the earlier place in this text's coordinates."""
        if earlier is None or earlier._pattern is not self._pattern:
            return _NOTHING, 0
        found = earlier._found
        if not self._before.startswith(earlier._before[: found.resume + _LOOK_AHEAD]):
            return _NOTHING, 0
        shorter, longer = sorted((self._behind, earlier._behind), key=len)
        if not longer.endswith(shorter):
            return found._replace(rest=(), begins={}), 0
        return found, len(self._before) + len(self._behind) - len(earlier._behind)


def closes_unopened(text: str, language_id: str) -> int | None:
    """Where `text` first closes a bracket that it has not opened, or None."""
    count = _Count()
    for match in language(language_id).tokens.finditer(text):
        count.take((match.group(),))
        if count.closers:
            return match.start()
    return None


def _close(opened: list[str], opener: str) -> bool:
    """Remove the last `opener` and all openers after it; False if there is none."""
    if opener not in opened:
        return False
    while opened.pop() != opener:
        pass
    return True
