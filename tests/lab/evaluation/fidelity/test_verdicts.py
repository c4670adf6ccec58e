"""What became of the model's text."""

from __future__ import annotations

import pytest

from midfill_lab.evaluation.fidelity.places import Place
from midfill_lab.evaluation.fidelity.verdicts import Verdict, count, row_object, table, verdict

PLACE = Place("a:1", "c", "closed", "x = f(", ")\ny();\n", "a, b) + 1;", "x = f(a, b) + 1;\ny();\n")


@pytest.mark.parametrize(
    ("accepted", "said"),
    [
        ("x = f(a, b) + 1;\ny();\n", "as written"),
        (None, "nothing"),
        ("x = f(a, b))\ny();\n", "cut"),
        ("x = f(a, b) + 1;)\ny();\n", "doubled closer"),
        ("x = f(a)\ny();\n", "cut"),
        ("x = f(a, b) +  1;\ny();\n", "white space"),
        ("x = f(c)\ny();\nz();\nz();\n", "other"),
    ],
)
def test_verdict(accepted: str | None, said: Verdict) -> None:
    assert verdict(PLACE, accepted) == said


def test_a_closer_that_is_there_needs_no_suggestion() -> None:
    place = Place("a:1", "c", "closed", "f(", ")", ")", "f()")
    assert verdict(place, None) == "as written"


def test_counts_by_language_and_kind() -> None:
    other = Place("b:1", "go", "start", "", "", "x", "x")
    counts = count([(PLACE, "cut"), (PLACE, "as written"), (other, "as written")])
    assert counts["c", "closed"] == {"cut": 1, "as written": 1}
    shown = table(counts)
    assert shown.row_count == 4  # two places, and two sums
    assert row_object(other, "x", "as written") == {
        "place": "b:1", "language": "go", "kind": "start", "verdict": "as written",
    }  # fmt: skip
    assert row_object(PLACE, "x", "other")["accepted"] == "x"
