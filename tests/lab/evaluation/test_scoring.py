"""How completions are judged, and the intervals of the figures."""

from __future__ import annotations

import pytest

from midfill_lab.evaluation.scoring import mean, score, share
from midfill_lab.evaluation.tasks import Case, Task

LINE = Case(Task("a line", "single-line", "x = 1\n", "    total += value  ", "\n"), "    tot")
SPAN = Case(Task("a span", "random-span", "import ran", "dom\nran", "dom.seed()\n"), "")


def test_white_space_at_the_end_of_a_line_does_not_count() -> None:
    assert score(LINE, "al += value").exact
    assert score(LINE, "al += value \t").exact
    assert not score(LINE, " al += value").exact
    assert not score(SPAN, "dom\nran ").exact


def test_edit_similarity_is_one_less_the_share_of_edits() -> None:
    assert score(LINE, "al += value").similarity == 1
    assert score(LINE, "al -= value").similarity == pytest.approx(10 / 11)
    assert score(LINE, "").similarity == 0


def test_an_alternative_may_be_right() -> None:
    given = score(LINE, "al -= value", alternatives=["al", "al += value "])
    assert (given.exact, given.any_exact) == (False, True)
    assert score(LINE, "al += value").any_exact
    assert not score(LINE, "al -= value").any_exact


@pytest.mark.parametrize(
    ("case", "completion", "finished"),
    [
        (LINE, "al += 1", True),
        (LINE, "ally += value", False),
        (LINE, "", False),
        (SPAN, "dom\nimport ran", True),
        (SPAN, "dom", False),
        (Case(LINE.task, "    total "), "+= value", None),
        (Case(LINE.task, "    total"), " += value", None),
        (Case(LINE.task, ""), "    total", None),
    ],
)
def test_the_first_word_counts_where_the_cursor_is_inside_one(case: Case, completion: str, finished: bool) -> None:
    assert score(case, completion).first_word is finished


def test_a_word_that_goes_on_in_the_suffix_is_judged_whole() -> None:
    case = Case(Task("a word", "random-span", "im", "po", "rt os\n"), "")
    assert score(case, "po").first_word is True
    assert score(case, "port").first_word is False


def test_the_interval_of_a_share_is_wilsons() -> None:
    estimate = share([True] * 8 + [False] * 2)
    assert estimate is not None
    assert estimate.value == 0.8
    assert estimate.interval == pytest.approx((0.4902, 0.9433), abs=1e-4)  # as statsmodels computes it


@pytest.mark.parametrize("hit", [True, False])
def test_an_interval_holds_its_value_and_stays_a_share(hit: bool) -> None:
    for n in range(1, 200):
        estimate = share([hit] * n)
        assert estimate is not None
        low, high = estimate.interval
        assert 0 <= low <= estimate.value <= high <= 1


def test_the_interval_of_a_mean_is_always_the_same_bootstrap() -> None:
    values = [number / 100 for number in range(101)]
    estimate = mean(values)
    assert estimate is not None
    assert estimate == mean(values)
    assert estimate.value == pytest.approx(0.5)
    low, high = estimate.interval
    # The standard error of this mean is 0.029.
    assert low == pytest.approx(0.5 - 1.96 * 0.029, abs=0.01)
    assert high == pytest.approx(0.5 + 1.96 * 0.029, abs=0.01)


def test_nothing_counted_is_no_figure() -> None:
    assert share([]) is None
    assert mean([]) is None
