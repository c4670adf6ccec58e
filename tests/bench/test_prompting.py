from tests.bench.conftest import Figures


def test_a_tiny_run_gives_figures_for_each_size(figures: Figures) -> None:
    milliseconds = figures("prompting.py", "--lines", "50", "--lines", "500", "--edits", "100")["milliseconds"]
    assert set(milliseconds) == {"50", "500"}
    assert milliseconds["500"]["p99"] > 0
