"""The doctor's findings: facts by section, and problems that keep midfill from working."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Section:
    """The facts about one subject by name, and its problems; each problem names its remedy.

    `minor` are facts that are seldom looked for: the terminal shows them on request.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...] = ()
    minor: tuple[tuple[str, str], ...] = ()


def as_json(sections: Iterable[Section]) -> dict[str, Any]:
    """The findings as a JSON object."""
    sections = tuple(sections)
    problems = [problem for section in sections for problem in section.problems]
    return {
        "ok": not problems,
        "problems": problems,
        "sections": {section.title: dict((*section.facts, *section.minor)) for section in sections},
    }
