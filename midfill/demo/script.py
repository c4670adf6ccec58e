"""The script of the demo: a method typed into the middle of a class, with slips, and a jump to the imports and back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """Type this text; if `accepting`, accept a suggestion that equals its next characters."""

    text: str
    accepting: bool = True


@dataclass(frozen=True, slots=True)
class Backspace:
    """Delete so many characters before the cursor."""

    count: int


@dataclass(frozen=True, slots=True)
class TryOut:
    """Accept the suggestion that is shown, if any, whatever its text, and undo that."""


@dataclass(frozen=True, slots=True)
class Jump:
    """Click behind the last occurrence of `behind`."""

    behind: str


Action = Type | Backspace | TryOut | Jump

SAMPLE = "warehouse.py"

SCRIPT: tuple[Action, ...] = (
    Jump("return self._items[name]"),
    Type("\n\n    def remove(self, name: str)", accepting=False),
    Type(' -> None:\n        """Take an item out of the warehouse."""\n        if name not in self._itmes'),
    Backspace(3),
    Type("ems:\n            raise "),
    TryOut(),
    Type("UnknownItem(name)"),
    Jump("import json"),
    Type("\nimport logging"),
    Jump("raise UnknownItem(name)"),
    Type('\n        logging.info("removed %s", name)\n        del self._items[name]'),
)
