from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from proof.runner import Check, Finding, Record, Row, Runner, Section, Skipped


class Clock:
    """A clock that goes on as sections spend its seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


Conclude = Callable[[Sequence[Row]], Iterable[Finding]]


def section(number: int, planned_s: float, measure: Callable[[], Iterator[Row]], conclude: Conclude = lambda _: ()) -> Section:
    return Section(number, f"section {number}", planned_s, measure, conclude)


def spending(clock: Clock, *seconds: float) -> Callable[[], Iterator[Row]]:
    """Measures one row after another, each of so many seconds."""

    def measure() -> Iterator[Row]:
        for number, each in enumerate(seconds):
            clock.now += each
            yield {"row": number}

    return measure


def run(tmp_path: Path, sections: Sequence[Section], clock: Clock, deadline: float = math.inf) -> Record:
    record = Record(tmp_path)
    assert Runner(record, deadline, clock=clock).run(sections) == []
    return record


def test_sections_are_judged_by_their_checks(tmp_path: Path) -> None:
    clock = Clock()
    quick = spending(clock, 1, 1)

    def conclude(*findings: Finding) -> Conclude:
        return lambda rows: [*findings, f"{len(rows)} rows"]

    sections = [
        section(1, 5, quick, conclude(Check("it holds", True))),
        section(2, 5, quick, conclude()),
        section(3, 5, quick, conclude(Check("it holds", True), Check("it does not", False, "7"))),
    ]
    outcomes = run(tmp_path, sections, clock).outcomes
    assert [outcome.verdict for outcome in outcomes] == ["pass", "measured", "FAIL"]
    assert [outcome.lines for outcome in outcomes] == [["2 rows"]] * 3
    assert [outcome.seconds for outcome in outcomes] == [2, 2, 2]


def test_a_section_that_takes_too_long_is_cut_and_concludes_from_what_it_has(tmp_path: Path) -> None:
    clock = Clock()
    closed: list[bool] = []

    def measure() -> Iterator[Row]:
        try:
            yield from spending(clock, *[3.0] * 100)()
        finally:
            closed.append(True)

    sections = [section(1, 10, measure, lambda rows: [f"{len(rows)} rows"]), section(2, 10, spending(clock, 1))]
    cut, after = run(tmp_path, sections, clock, deadline=20).outcomes
    assert (cut.verdict, cut.lines, len(cut.rows), closed) == ("cut", ["4 rows"], 4, [True])
    assert after.verdict == "measured"


def test_a_check_that_fails_counts_in_a_section_that_is_cut(tmp_path: Path) -> None:
    clock = Clock()
    endless = section(1, 10, spending(clock, *[9.0] * 9), lambda _: [Check("it holds", False)])
    (outcome,) = run(tmp_path, [endless], clock, deadline=10).outcomes
    assert (outcome.verdict, outcome.note) == ("FAIL", "cut short after 10 s")


def test_seconds_that_are_saved_go_to_the_sections_ahead(tmp_path: Path) -> None:
    clock = Clock()
    sections = [section(1, 30, spending(clock, 1)), section(2, 30, spending(clock, *[5.0] * 100))]
    outcomes = run(tmp_path, sections, clock, deadline=60).outcomes
    assert outcomes[1].seconds == 60  # all that is left, up to twice as much as planned


def test_a_short_budget_is_shared_as_planned(tmp_path: Path) -> None:
    clock = Clock()
    sections = [section(number, 10 * number, spending(clock, *[1.0] * 100)) for number in (1, 2, 3)]
    outcomes = run(tmp_path, sections, clock, deadline=30).outcomes
    assert [outcome.verdict for outcome in outcomes] == ["cut"] * 3
    assert [outcome.seconds for outcome in outcomes] == [6, 10, 15]


def test_what_has_no_time_is_skipped_by_name(tmp_path: Path) -> None:
    clock = Clock()
    sections = [section(1, 10, spending(clock, 19)), section(2, 10, spending(clock, 1))]
    assert [outcome.verdict for outcome in run(tmp_path, sections, clock, deadline=20).outcomes] == ["cut", "skipped"]


def test_an_error_ends_its_section_alone(tmp_path: Path) -> None:
    clock = Clock()

    def broken() -> Iterator[Row]:
        yield {"row": 1}
        raise ValueError("no such kernel")

    def missing() -> Iterator[Row]:
        raise Skipped("without pytest")
        yield

    sections = [section(1, 5, broken), section(2, 5, missing), section(3, 5, spending(clock, 1))]
    first, second, third = run(tmp_path, sections, clock).outcomes
    assert (first.verdict, first.note) == ("ERROR", "ValueError: no such kernel")
    assert [list(row) for row in first.rows] == [["row"], ["traceback"]]
    assert (second.verdict, second.note) == ("skipped", "without pytest")
    assert third.verdict == "measured"


def test_a_lost_device_leaves_the_rest_to_another_process(tmp_path: Path) -> None:
    clock = Clock()
    sections = [section(number, 5, spending(clock, 1)) for number in (1, 2, 3, 4)]
    lost = iter([False, True])
    between: list[int] = []
    runner = Runner(Record(tmp_path), math.inf, clock=clock, is_lost=lambda: next(lost), between=lambda: between.append(1))
    assert [each.number for each in runner.run(sections)] == [3, 4]
    assert between == [1]
    again = Record(tmp_path, go_on=True)
    Runner(again, math.inf, clock=clock).run(sections[2:])
    assert [outcome.number for outcome in again.outcomes] == [1, 2, 3, 4]


def test_a_line_that_was_not_written_to_its_end_is_dropped(tmp_path: Path) -> None:
    clock = Clock()
    run(tmp_path, [section(number, 5, spending(clock, 1)) for number in (1, 2)], clock)
    lines = tmp_path / "proof.jsonl"
    lines.write_text(lines.read_text()[:-20])
    assert [outcome.number for outcome in Record(tmp_path, go_on=True).outcomes] == [1]
    assert Record(tmp_path).outcomes == []
    assert lines.read_text() == ""


def test_the_running_section_is_known_until_it_ends(tmp_path: Path) -> None:
    clock = Clock()
    seen = []

    def measure() -> Iterator[Row]:
        yield {"row": 1}
        clock.now += 2
        seen.append(runner.stopped("the command ended"))

    record = Record(tmp_path)
    runner = Runner(record, math.inf, clock=clock)
    runner.run([section(1, 5, measure)])
    assert [(outcome.verdict, outcome.rows, outcome.seconds) for outcome in seen] == [("cut", [{"row": 1}], 2)]
    assert runner.running is None
