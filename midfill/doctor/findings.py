"""What the doctor finds: facts by section, and problems that keep midfill from completing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Section:
    """The facts about one thing, by name, and what is wrong with it; a problem says what to do."""

    title: str
    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...] = ()


def as_json(sections: Iterable[Section]) -> dict[str, Any]:
    """The findings as a JSON object."""
    sections = tuple(sections)
    problems = [problem for section in sections for problem in section.problems]
    return {
        "ok": not problems,
        "problems": problems,
        "sections": {section.title: dict(section.facts) for section in sections},
    }


def megabytes(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
