"""Converts a Python file into a session for `midfill replay` in which some of its statements are typed, key by key.

    python bench/typed_session.py FILE SESSION.json [--statements 60] [--lines 6] [--seed 0]
    midfill replay SESSION.json --language python --strategies efim --moves

Whole statements are taken out of the file and typed again where they were, from the top down: a line is opened below
the one before, with its indentation, as editors do, then each transaction types one character. It stands in for
recorded sessions in Python, and is easier: it has no corrections, and the rest of the file is complete.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated

import typer

_KEYS = re.compile(r"\n[ \t]*|.")


def typed_session(text: str, statements: int, lines: int, seed: int) -> dict[str, object]:
    """The session as a trace: the text without up to `statements` statements of up to `lines` lines, and their keys."""
    rows = text.splitlines(keepends=True)
    spans = _spans(ast.parse(text), rows, statements, lines, seed)
    missing = {row for first, last in spans for row in range(first, last)}
    start = "".join(row for number, row in enumerate(rows) if number not in missing)
    transactions = []
    for first, last in spans:
        position = sum(map(len, rows[:first])) - 1  # the end of the line above
        for key in _KEYS.findall("\n" + "".join(rows[first:last]).removesuffix("\n")):
            transactions.append({"patches": [[position, 0, key]]})
            position += len(key)
    return {"startContent": start, "endContent": text, "txns": transactions}


def _spans(module: ast.Module, rows: list[str], count: int, lines: int, seed: int) -> list[tuple[int, int]]:
    """The lines [first, last) of statements that are alone on them, the upper ones first; no two of them touch."""
    found = [span for span in _statements(module) if span[0] > 0 and span[1] - span[0] <= lines]
    Random(seed).shuffle(found)
    chosen: list[tuple[int, int]] = []
    for first, last in found:
        alone = ";" not in rows[first] and rows[first - 1].endswith("\n")
        if len(chosen) < count and alone and all(last < other or end < first for other, end in chosen):
            chosen.append((first, last))
    return sorted(chosen)


def _statements(module: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(module):
        if isinstance(node, ast.stmt) and node.end_lineno is not None and not getattr(node, "decorator_list", ()):
            yield node.lineno - 1, node.end_lineno


def main(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    session: Annotated[Path, typer.Argument(help="Trace file to write.")],
    statements: Annotated[int, typer.Option(min=1, help="Maximum number of statements to type.")] = 60,
    lines: Annotated[int, typer.Option(min=1, help="Maximum number of lines per statement.")] = 6,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Write the session."""
    made = typed_session(file.read_text(encoding="utf-8"), statements, lines, seed)
    session.write_text(json.dumps(made) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
