"""Runs the sections of a proof within a budget of seconds, and records each one's outcome when it ends.

A section measures, and concludes from what it has measured. Its `measure` is a generator of rows; between two rows the
runner looks at the clock, so that a section that takes too long is cut short and still concludes from what is there.
"""

from __future__ import annotations

import json
import math
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

Row = dict[str, Any]
"""One measurement: names and JSON values."""

Verdict = Literal["pass", "FAIL", "measured", "cut", "skipped", "ERROR"]

LEAST_OF_PLANNED = 0.2
"""A section that would get less than this share of its planned seconds is skipped."""

MOST_OF_PLANNED = 2.0
"""No section gets more than this many times its planned seconds, so that a slow one leaves time for those ahead."""


@dataclass(frozen=True, slots=True)
class Check:
    """One pass mark: what must hold, whether it does, and the figure that decides it."""

    what: str
    passed: bool
    found: str = ""


class Skipped(Exception):
    """The section cannot run here; the message says what is missing."""


Finding = Check | str
"""A pass mark, or a line of the final table."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the proof, with the seconds that it is planned to take."""

    number: int
    name: str
    planned_s: float
    measure: Callable[[], Iterator[Row]]
    conclude: Callable[[Sequence[Row]], Iterable[Finding]]


@dataclass(slots=True)
class Outcome:
    """What a section found; it passes with at least one check, if all hold."""

    number: int
    name: str
    planned_s: float
    seconds: float = 0.0
    verdict: Verdict = "measured"
    note: str = ""  # why it was cut short, skipped or failed
    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def conclude(self, section: Section) -> None:
        """Add the section's findings; a check that does not hold counts even where the section was cut short."""
        for found in section.conclude(self.rows):
            if isinstance(found, Check):
                self.checks.append(found)
            else:
                self.lines.append(found)
        if any(not check.passed for check in self.checks):
            self.verdict = "FAIL"
        elif self.verdict == "measured" and self.checks:
            self.verdict = "pass"


class Record:
    """The files of a proof: `proof.jsonl` has a line for each section as it ends, `proof.json` all of them."""

    def __init__(self, folder: Path, *, go_on: bool = False) -> None:
        """`go_on` keeps the sections that an earlier process recorded there."""
        folder.mkdir(parents=True, exist_ok=True)
        self._lines, self._whole = folder / "proof.jsonl", folder / "proof.json"
        self.outcomes = _read(self._lines) if go_on and self._lines.exists() else []
        if not go_on:
            self._lines.write_text("", encoding="utf-8")

    def add(self, outcome: Outcome) -> None:
        """Append a section that has ended, and have the disk keep it."""
        self.outcomes.append(outcome)
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome), default=str) + "\n")
            _sync(file)

    def write(self, facts: Mapping[str, object]) -> None:
        """Write all sections, with the facts about the machine, as one JSON object."""
        ordered = sorted(self.outcomes, key=lambda outcome: outcome.number)
        found = {**facts, "sections": [asdict(outcome) for outcome in ordered]}
        with self._whole.open("w", encoding="utf-8") as file:
            json.dump(found, file, indent=1, default=str)
            file.write("\n")
            _sync(file)


class Runner:
    """Runs sections one after another until the deadline."""

    def __init__(
        self,
        record: Record,
        deadline: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        is_lost: Callable[[], bool] = lambda: False,
        between: Callable[[], object] = lambda: None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`deadline` is by `clock`. `is_lost` says whether this process can no longer use the device.

        `between` frees what a section leaves behind; `tell` receives the progress.
        """
        self._record, self._deadline, self._clock = record, deadline, clock
        self._is_lost, self._between, self._tell = is_lost, between, tell
        self.running: Outcome | None = None
        """The section at work, with its rows so far."""
        self._began = 0.0

    def run(self, sections: Sequence[Section]) -> list[Section]:
        """Run the sections in order; returns those that are left because the device was lost, or none."""
        for place, section in enumerate(sections):
            self._tell(f"{section.number} {section.name} ...")
            outcome = self._outcome(section, self._limit(sections[place:]))
            self._record.add(outcome)
            self._tell(f"{section.number} {section.name}: {outcome.verdict} {outcome.note}")
            if self._is_lost():
                return list(sections[place + 1 :])
            self._between()
        return []

    def stopped(self, why: str) -> Outcome:
        """The running section as it is now, for the record of a process that ends within it."""
        assert self.running is not None, "no section is running"
        outcome = replace(self.running, verdict="cut", note=why, seconds=round(self._clock() - self._began, 2))
        outcome.rows = list(outcome.rows)
        return outcome

    def _limit(self, ahead: Sequence[Section]) -> float:
        """Seconds for the first of these: what is left is shared among them as planned."""
        if self._deadline == math.inf:
            return math.inf
        planned = ahead[0].planned_s
        left = self._deadline - self._clock()
        return min(left * planned / sum(each.planned_s for each in ahead), MOST_OF_PLANNED * planned)

    def _outcome(self, section: Section, limit: float) -> Outcome:
        outcome = Outcome(section.number, section.name, section.planned_s)
        if limit < LEAST_OF_PLANNED * section.planned_s:
            outcome.verdict, outcome.note = "skipped", f"it would have had {max(0.0, limit):.0f} s"
            return outcome
        started = self._began = self._clock()
        self.running = outcome
        try:
            with closing(section.measure()) as rows:  # type: ignore[type-var]
                for row in rows:
                    outcome.rows.append(row)
                    if self._clock() - started > limit:
                        outcome.verdict, outcome.note = "cut", f"cut short after {limit:.0f} s"
                        break
            outcome.conclude(section)
        except Skipped as reason:
            outcome.verdict, outcome.note = "skipped", str(reason)
        except Exception as error:  # noqa: BLE001 - the other sections are of use all the same
            outcome.verdict, outcome.note = "ERROR", f"{type(error).__name__}: {error}"
            outcome.rows.append({"traceback": traceback.format_exc()})
        self.running = None
        outcome.seconds = round(self._clock() - started, 2)
        return outcome


def grouped(rows: Iterable[Row], name: str) -> Iterator[tuple[Any, list[Row]]]:
    """The rows by their value of this name, in the order of its first appearance; without those that lack it."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        if name in row:
            groups.setdefault(row[name], []).append(row)
    yield from groups.items()


def _read(path: Path) -> list[Outcome]:
    """The outcomes in a file, up to a line that was not written to its end."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            break
        found.append(Outcome(**{**fields, "checks": [Check(**check) for check in fields["checks"]]}))
    return found


def _sync(file: TextIO) -> None:
    file.flush()
    os.fsync(file.fileno())
