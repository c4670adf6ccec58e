from __future__ import annotations

import pytest
from proof.report import MOST_CHARS, MOST_LINES, WIDTH, has_failed, table, verdict
from proof.runner import Check, Outcome, Verdict

FACTS: dict[str, object] = {"machine": "a card", "packages": "torch 2.11.0"}


def outcome(number: int, kind: Verdict = "pass", **more: object) -> Outcome:
    return Outcome(number, f"section {number}", 10.0, 2.5, kind, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kinds", "failed"),
    [
        (["pass", "measured", "skipped"], False),
        (["pass", "FAIL"], True),
        (["pass", "ERROR"], True),
        (["pass", "cut"], True),
        ([], True),
    ],
)
def test_what_failed_or_did_not_end_proves_nothing(kinds: list[Verdict], failed: bool) -> None:
    outcomes = [outcome(number, kind) for number, kind in enumerate(kinds)]
    assert has_failed(outcomes) is failed
    assert verdict(outcomes).startswith("NOT PROVEN" if failed else "PROVEN")


def test_checks_that_failed_are_named_and_the_others_counted() -> None:
    checks = [Check("it holds", True), Check("graphs are right", False, "error 0.3")]
    text = table([outcome(3, "FAIL", checks=checks)], FACTS)
    assert "1 of 2 checks" in text
    assert "NOT: graphs are right (error 0.3)" in text
    assert "it holds" not in text


def test_the_table_stays_short_whatever_the_sections_say() -> None:
    lines = [f"line {number} " + "x" * 300 + "\n" + "y" * 300 for number in range(100)]
    checks = [Check("what " + "z" * 400, False, "found")] * 100
    outcomes = [outcome(number, "FAIL", lines=lines, checks=checks, note="n" * 900) for number in range(14)]
    text = table(outcomes, FACTS)
    assert len(text) <= MOST_CHARS
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert text.splitlines()[-1].startswith("NOT PROVEN")
    assert [f"{number:>2}  section" in text for number in range(14)] == [True] * 14


def test_a_section_with_room_keeps_its_lines_up_to_the_most() -> None:
    text = table([outcome(5, lines=[f"line {number}" for number in range(MOST_LINES + 10)])], FACTS)
    assert text.count("line ") == MOST_LINES
    assert "line 0" in text
    assert f"line {MOST_LINES + 9}" in text
