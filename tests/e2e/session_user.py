"""A user who types a recorded session into an editor, and decides about each next edit that is shown."""

from __future__ import annotations

import logging
from collections import Counter
from difflib import ndiff
from itertools import cycle
from typing import Protocol

from midfill.replay.trace import Patch
from tests.e2e.neovim.driver import soon, until
from tests.e2e.recorded_session import AHEAD, Model, Session, apply

log = logging.getLogger(__name__)


class Hands(Protocol):
    """What a test does in an editor, as a user would."""

    def type(self, text: str, patch: Patch) -> None:
        """Make this change of the text, by keys."""

    def rest(self) -> None:
        """Do what users do who stop typing."""

    def text(self) -> str: ...

    def is_shown(self) -> bool:
        """Whether a next edit is."""

    def go(self) -> None:
        """Jump to the edit, or apply it in its lines."""

    def has_gone(self) -> bool:
        """Whether the last `go` has jumped."""

    def refuse(self) -> None: ...

    def undo(self) -> None: ...


class User:
    """Types the session, and decides about each edit that is shown."""

    def __init__(self, session: Session, model: Model, hands: Hands) -> None:
        self._session, self._model, self._hands = session, model, hands
        self._choices = cycle(["accept", "accept", "refuse", "jump", "ignore"])
        self.done: Counter[str] = Counter()
        self._last = ""  # what was done last

    @property
    def text(self) -> str:
        return self._session.texts[self._model.now]

    def run(self) -> None:
        while self._model.now < len(self._session.transactions):
            number, text = self._model.now, self.text
            for patch in self._session.transactions[number]:
                self._hands.type(text, patch)
                text = apply(text, (patch,))
            self._model.now += 1
            if self._session.rests[number]:
                self.check()
                self._hands.rest()
                if soon(self._hands.is_shown, 0.7):
                    self._last = self._decide(next(self._choices))
                    self.done[self._last] += 1
                self.check()
        self.check()
        log.info("%d transactions, %s", len(self._session.transactions), dict(self.done))

    def check(self) -> None:
        soon(lambda: self._hands.text() == self.text, 60.0)
        found = self._hands.text()
        where = f"after {self._model.now} transactions, {dict(self.done)} and {self._last}:"
        assert found == self.text, where + "\n" + "\n".join(ndiff(self.text.split("\n"), found.split("\n")))

    def _decide(self, choice: str) -> str:
        if choice == "refuse":
            self._hands.refuse()
        for _ in range({"accept": 2, "jump": 1}.get(choice, 0)):  # in the edit's lines, the first key applies it
            self._hands.go()
            until(lambda: self._hands.text() != self.text or self._hands.has_gone())
            if self._hands.text() != self.text:
                return self._keep_or_undo()
        return choice

    def _keep_or_undo(self) -> str:
        """Keep what the session does next, and undo a deletion."""
        found, now = self._hands.text(), self._model.now
        ahead = self._session.texts[now : now + AHEAD + 1]
        if found in ahead:
            self._model.now += ahead.index(found)
            return "kept"
        self._hands.undo()
        return "undone"
