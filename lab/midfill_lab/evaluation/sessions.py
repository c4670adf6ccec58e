"""Recorded sessions as scenarios of next edits: at a pause, the ideal next state is the document at the next pause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

from lsp_server.documents.documents import Document
from lsp_server.next_edit.history import PAUSE_S, History
from midfill.replay.trace import Trace, play, read_trace
from midfill_lab.evaluation.scenarios import Scenario
from protocol.errors import BadInput

DEFAULT_CASES = 200


def scenarios_in(file: Path, limit: int | None, seed: int) -> list[Scenario]:
    """At most `limit` pauses of the session, drawn by the seed, in their order; BadInput if it has no pauses."""
    trace = read_trace(file)
    pauses = list(_pauses(trace))
    if len(pauses) < 2:
        raise BadInput(f"{file} has no two pauses of {PAUSE_S:g} s, or its transactions have no times")
    count = min(limit or DEFAULT_CASES, len(pauses) - 1)
    drawn = sorted(Random(seed).sample(range(len(pauses) - 1), count))
    wanted = {pauses[number]: pauses[number + 1] for number in drawn}
    return list(_played(trace, wanted, file.name.removesuffix(".gz").removesuffix(".json")))


def _pauses(trace: Trace) -> Iterator[int]:
    """The transactions before which the user paused. Where times are whole, a difference of 1 may be no pause."""
    least = PAUSE_S if any(time % 1 for time in trace.times) else 2 * PAUSE_S
    for number, (earlier, later) in enumerate(pairwise(trace.times), start=1):
        if later - earlier >= least and trace.transactions[number]:
            yield number


def _played(trace: Trace, wanted: dict[int, int], path: str) -> Iterator[Scenario]:
    """The scenarios at the wanted transactions, each with the text at the later one."""
    document, history, text = Document.from_text(path, "", 0, trace.start), History(), trace.start
    cursor, open_ones = document.end, dict[int, Scenario]()
    numbers = (number for number, patches in enumerate(trace.transactions) if patches)
    for number, step in zip(numbers, play(trace), strict=True):
        if (scenario := open_ones.pop(number, None)) is not None:
            yield replace(scenario, expected=text)
        if number in wanted:
            column = len(document.lines[cursor.line][: cursor.column].encode(errors="replace"))
            open_ones[wanted[number]] = Scenario(
                name=f"{path}:{number}",
                path=path,
                text=text,
                cursors=((cursor.line, column),),
                events=history.events,
                expected=None,
                modified=True,
                by_command=False,
            )
        elif not open_ones and number > max(wanted):
            return
        for edit in step.edits:
            before = list(document.lines)
            change = document.apply(edit)
            history = history.edited(path, before, document.lines, change, trace.times[number])
        text, cursor = step.text, document.nearest(step.cursor)
