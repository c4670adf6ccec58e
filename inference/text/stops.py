"""Stops of a completion: the newline, the end of a block, a stop text, or the place where the text goes on as the
suffix.

A model that does not see where the suffix begins writes it once more. Brackets, quotes, and tags and words that close
a block do not show by themselves that it has reached the suffix, since a completion closes its own.
"""

from __future__ import annotations

import re

from protocol.messages import FinishReason, StopRule
from protocol.stopping import find_stop

SAYS_ENOUGH = 3
"""So many letters, digits and underscores are no coincidence."""
MOST_CHARS = 256
"""The suffix is recognized by its first characters."""

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|$)")
_NEWLINE = re.compile(r"[\r\n]")
_WORD_CHARACTER = re.compile(r"\w")
_CLOSING = re.compile(r"\s*(?:(?:</[\w:.-]+>|\\end\{\w*\}|(?:end(?:if|for|while|function|try)?|fi|done|esac)\b)\s*)+[;,)\]}\s]*")
_BEGINNING = re.compile(rf"(?:\W*\w){{{SAYS_ENOUGH}}}\w*")


class Suffix:
    """The text behind the cursor, as completions repeat it.

    Attributes:
        stop_texts: what ends a completion that has reached the suffix: its first lines, which end where the
            completion's do.
    """

    def __init__(self, suffix: str) -> None:
        head = suffix[:MOST_CHARS]
        self._lines = first_lines(head)
        goes_on = len(self._lines) == len(head) < len(suffix) and suffix[len(head)] not in "\r\n"
        ends = ("",) if goes_on else ("\n", "\r")
        self.stop_texts: tuple[str, ...] = tuple(self._lines + end for end in ends if self._lines)
        beginning = None if _NEWLINE.search(self._lines) else _BEGINNING.match(self._lines)
        self._beginning = "" if beginning is None else beginning.group()
        start = r"\b" if _WORD_CHARACTER.match(self._beginning) else ""
        self._whole_words = re.compile(rf"{start}{re.escape(self._beginning)}(?!\w)")

    def end(self, text: str, *, by_itself: bool) -> int:
        """The end of a `text` that goes on no more: before the suffix, if it ends with its first lines.

        A text that a newline or a limit ends, not the model (`by_itself`), may have reached the rest of the cursor's
        line and gone on in another way. Then it ends before the words that its own first line shares with this rest.
        """
        if self._lines and text.endswith(self._lines):
            return len(text) - len(self._lines)
        shared = None if by_itself else self._shared(text)
        return len(text) if shared is None else shared

    def stable(self, text: str) -> int:
        """Number of leading characters that `end` cannot take away, however `text` goes on."""
        repeated = self._lines if text.endswith(self._lines) else ""
        length = len(text) - max(len(repeated), begun(self._lines, text))
        shared = self._shared(text)
        if shared is not None:
            return min(length, shared)
        return length if _NEWLINE.search(text) else min(length, len(text) - begun(self._beginning, text))

    def _shared(self, text: str) -> int | None:
        """Where the text's first line, behind other text, has the words that the rest of the cursor's line begins with.

        At least SAYS_ENOUGH word characters, in whole words.
        """
        if not self._beginning:
            return None
        newline = _NEWLINE.search(text)
        line = text if newline is None else text[: newline.start()]
        written = len(line) - len(line.lstrip())  # the place of its first character
        found = self._whole_words.search(line, written + 1)
        return None if found is None else found.start()


def first_lines(suffix: str) -> str:
    """The rest of the cursor's line; if it only closes something, with the lines below it that say enough.

    Without the end of the last line; empty if there is nothing of the kind.
    """
    said = 0
    for number, line in enumerate(_LINE.finditer(suffix)):
        if not _CLOSING.fullmatch(line.group(1)):
            said += len(_WORD_CHARACTER.findall(line.group(1)))
        if said >= (SAYS_ENOUGH if number else 1):
            return suffix[: line.end(1)]
    return ""


def begun(stop: str, text: str) -> int:
    """Number of characters at the end of `text` that `stop` may begin with."""
    return next((count for count in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:count])), 0)


class Stops:
    """Finds the end of one completion while its text grows."""

    def __init__(self, rule: StopRule, texts: tuple[str, ...] = (), suffix: str = "") -> None:
        """`texts` are not empty; the completion ends before the first of them, and where `suffix` begins."""
        self._rule = rule
        self._suffix = Suffix(suffix)
        self._texts = texts + self._suffix.stop_texts
        self._resume_at = 0
        self._searched = 0

    def find(self, text: str) -> int | None:
        """The end of the completion `text`, which begins with that of the last call; None if it may continue."""
        ruled, self._resume_at = find_stop(text, self._rule, self._resume_at)
        found = [(text.find(stop, max(0, self._searched - len(stop) + 1)), len(stop)) for stop in self._texts]
        self._searched = len(text)
        # The stop that is complete first ends the text, so that it does not matter in which pieces the text grew.
        end = min(((place + length, place) for place, length in found if place >= 0), default=(0, None))[1]
        if ruled is None or (end is not None and end <= ruled):
            return end
        return self._suffix.end(text[:ruled], by_itself=False)

    def last(self, text: str, reason: FinishReason) -> tuple[str, FinishReason]:
        """A `text` that goes on no more, up to the suffix, and why it ends: `reason` if it has not reached that."""
        ruled, _ = find_stop(text, self._rule, final=True)
        if ruled is not None and ruled < len(text):
            text, reason = text[:ruled], "stop"
        end = self._suffix.end(text, by_itself=reason == "eos")
        return (text, reason) if end == len(text) else (text[:end], "stop")

    def stable(self, text: str) -> int:
        """Number of leading characters of a `text` that may continue which no continuation can take away."""
        kept = text.rstrip() if self._rule.indent else text
        if self._rule.closers:  # whether the last line closes the block, and how far, is known at its end
            kept = kept[: max(0, kept.rfind("\n"))].rstrip()
        return min([self._suffix.stable(kept), *(len(text) - begun(stop, text) for stop in self._texts)])
