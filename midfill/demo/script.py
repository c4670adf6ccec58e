"""The scenes of the demo: for each language a sample file, and a method that is typed into the middle of a class."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Literal


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
DemoLanguage = Literal["python", "typescript"]


@dataclass(frozen=True, slots=True)
class Scene:
    """A sample file, by its name in the package, and what is typed into it."""

    sample: str
    language: DemoLanguage  # the language id
    script: tuple[Action, ...]

    @property
    def text(self) -> str:
        """The file's text at the beginning."""
        return resources.files("midfill").joinpath("samples", self.sample).read_text(encoding="utf-8")


_PYTHON = Scene(
    "warehouse.py",
    "python",
    (
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
    ),
)

_TYPESCRIPT = Scene(
    "basket.ts",
    "typescript",
    (
        Jump("return item;\n    }"),
        Type("\n\n    remove(name: string)", accepting=False),
        Type(": Item {\n        const item = this.fnd"),
        Backspace(2),
        Type("ind(name);\n        this.items.delete(name);\n        return item;"),
        Jump("const basket = new Basket();\n    for (const item of JSON.parse(text) as Item[]) {"),
        Type("\n        if (item.count > 0) {\n            basket.add(item);"),
    ),
)

SCENES: dict[DemoLanguage, Scene] = {scene.language: scene for scene in (_PYTHON, _TYPESCRIPT)}
