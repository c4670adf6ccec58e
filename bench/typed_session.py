"""A source file as a session in which parts of it are typed, key by key, for `midfill replay` to play.

    python bench/typed_session.py FILE SESSION.json [--blocks 30] [--lines 4] [--seed 0]
    midfill replay SESSION.json --language python --strategies efim --moves

Runs of consecutive lines are taken out of the file and typed again where they were, from the top down, a
character a transaction. It stands in for recorded sessions in languages of which there are none, and is kinder
than they are: nobody corrects anything, and all that stands below the cursor is finished already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated

import typer


def typed_session(text: str, blocks: int, lines: int, seed: int) -> dict[str, object]:
    """The session as a trace: the text without at most `blocks` runs of `lines` lines, and their keys."""
    rows = text.splitlines(keepends=True)
    places = list(_places(rows, blocks, lines, seed))
    missing = {row for place in places for row in range(place, place + lines)}
    start = "".join(row for number, row in enumerate(rows) if number not in missing)
    transactions = []
    for place in places:
        position = sum(map(len, rows[:place]))
        for offset, key in enumerate("".join(rows[place : place + lines])):
            transactions.append({"patches": [[position + offset, 0, key]]})
    return {"startContent": start, "endContent": text, "txns": transactions}


def _places(rows: list[str], blocks: int, lines: int, seed: int) -> Iterator[int]:
    """Where the runs begin, the upper ones first, with a line between them at least."""
    chosen: list[int] = []
    places = list(range(1, len(rows) - lines))
    Random(seed).shuffle(places)
    for place in places:
        if len(chosen) < blocks and rows[place].strip() and all(abs(place - other) > lines for other in chosen):
            chosen.append(place)
    yield from sorted(chosen)


def main(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    session: Annotated[Path, typer.Argument(help="The trace to write.")],
    blocks: Annotated[int, typer.Option(min=1, help="Runs of lines that are typed.")] = 30,
    lines: Annotated[int, typer.Option(min=1, help="Lines of a run.")] = 4,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Write the session."""
    made = typed_session(file.read_text(encoding="utf-8"), blocks, lines, seed)
    session.write_text(json.dumps(made) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
