"""The requests of editors' clients, from `tests/data/clients`: bodies with placeholders, and how windows are cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "data" / "clients"
CLIENTS = sorted(path.stem for path in FOLDER.glob("*.json"))

Cut = Callable[[str, int], str]


@dataclass(frozen=True, slots=True)
class RecordedClient:
    """One client's request."""

    path: str
    body: dict[str, Any]
    window: dict[str, Any]

    def body_at(self, text: str, offset: int) -> dict[str, Any]:
        """The body that the client sends for a cursor at this code point of a document."""
        cut_end, cut_start = _CUTS[self.window["unit"]]
        before, after = text[:offset], text[offset:]
        line = before.rfind("\n") + 1
        rest, newline, lines = after.partition("\n")
        values = {
            "before": cut_end(before, self.window["before"]),
            "after": cut_start(after, self.window["after"]),
            "lines_before": cut_end(before[:line], self.window["before"]),
            "line_before": before[line:],
            "line_after": rest + newline,
            "lines_after": cut_start(lines, self.window["after"]),
            "indent": len(before[line:]) - len(before[line:].lstrip()),
        }
        return {name: _filled(value, values) for name, value in self.body.items()}


def recorded(name: str) -> RecordedClient:
    """The client with this name."""
    fields = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return RecordedClient(fields["path"], fields["body"], fields["window"])


def _filled(value: Any, values: dict[str, Any]) -> Any:
    if value == "{indent}":
        return values["indent"]
    if isinstance(value, dict):
        return {name: _filled(item, values) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    for name, text in values.items():
        if f"{{{name}}}" in value:
            head, _, tail = value.partition(f"{{{name}}}")
            return head + text + _filled(tail, values)
    return value


def _last_lines(text: str, count: int) -> str:
    return "".join(text.splitlines(keepends=True)[-count:])


def _first_lines(text: str, count: int) -> str:
    return "".join(text.splitlines(keepends=True)[:count])


def _last_lines_within(text: str, characters: int) -> str:
    cut = text[-characters:]
    return cut if cut == text or "\n" not in cut else cut[cut.index("\n") + 1 :]


def _first_lines_within(text: str, characters: int) -> str:
    cut = text[:characters]
    return cut if cut == text or "\n" not in cut else cut[: cut.rindex("\n") + 1]


_CUTS: dict[str, tuple[Cut, Cut]] = {
    "lines": (_last_lines, _first_lines),
    "characters": (lambda text, count: text[-count:], lambda text, count: text[:count]),
    "lines of characters": (_last_lines_within, _first_lines_within),
}
