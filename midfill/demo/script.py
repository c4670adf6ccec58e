"""What the demo types: a method in the middle of a class, with a slip, and a jump to the imports and back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """Type this text; if `accepting`, a suggestion that says exactly what comes next in it is accepted."""

    text: str
    accepting: bool = True


@dataclass(frozen=True, slots=True)
class Backspace:
    """Delete so many characters before the cursor."""

    count: int


@dataclass(frozen=True, slots=True)
class Jump:
    """Click behind the last place where `behind` stands."""

    behind: str


Action = Type | Backspace | Jump

SAMPLE = "warehouse.py"

SCRIPT: tuple[Action, ...] = (
    Jump("return self._items[name]"),
    Type("\n\n    def remove(self, name: str) -> Item:", accepting=False),
    Type('\n        """Take an item out of the warehouse."""\n        if name not in self._itmes'),
    Backspace(3),
    Type("ems:\n            raise UnknownItem(name)"),
    Jump("import json"),
    Type("\nimport logging"),
    Jump("raise UnknownItem(name)"),
    Type('\n        logging.info("removed %s", name)\n        return self._items.pop(name)'),
)
