from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.fragments import MEASURES, VARIANTS, difference, estimate, evaluate, plot, read_tasks, rows_of, table_of
from midfill_lab.evaluation.runner import Score
from tests.inference.tiny import write_checkpoint

HIT = Score(exact=True, similarity=1.0, first_word=None, outcome="passed")
MISS = replace(HIT, exact=False, outcome="failed")


def test_differences_are_taken_task_by_task() -> None:
    same = difference([HIT, MISS] * 50, [HIT, MISS] * 50, "exact match")
    apart = difference([HIT, MISS] * 50, [MISS, MISS] * 50, "exact match")
    assert same is not None
    assert apart is not None
    assert (same.value, same.interval) == (0.0, (0.0, 0.0))  # no interval: no task differs
    assert apart.value == 0.5
    assert 0.4 <= apart.interval[0] < 0.5 < apart.interval[1] <= 0.6


def test_a_question_that_does_not_arise_is_not_counted() -> None:
    assert estimate([HIT, MISS], "first word") is None
    assert difference([HIT], [replace(MISS, outcome=None)], "pass@1") is None
    passed = estimate([HIT, MISS, replace(MISS, outcome=None)], "pass@1")
    assert passed is not None
    assert (passed.value, passed.n) == (0.5, 2)


def test_all_rows_answer_the_same_tasks(tmp_path: Path) -> None:
    source = tmp_path / "held_out" / "package"
    source.mkdir(parents=True)
    lines = (f"def function_{n}(value, other):\n    return value + other * {n}\n\n" for n in range(40))
    (source / "module.py").write_text("".join(lines))
    folders = {fragments: write_checkpoint(tmp_path / str(fragments)) for fragments in (True, False)}
    tasks = list(read_tasks(None, tmp_path / "held_out", limit=3))
    results = evaluate(folders, tasks, None, (128, 64), max_new_tokens=4, progress=lambda: None)
    assert [tasks_of.split for tasks_of in results] == ["single-line", "random-span"]
    for tasks_of, scores in results.items():
        assert set(scores) == set(VARIANTS)
        assert {len(of_variant) for of_variant in scores.values()} == {3}
        assert table_of(tasks_of, scores).row_count == len(VARIANTS) + 3
        # Random weights, the same for both: how they were trained makes no difference.
        assert scores[VARIANTS[1]] == scores[VARIANTS[3]]
    rows = list(rows_of(results))
    assert {row["measure"] for row in rows} <= set(MEASURES)
    plot(results, tmp_path / "plot.svg")
    assert "without, EFIM + healing" in (tmp_path / "plot.svg").read_text()


def test_nothing_to_evaluate_on_is_said(tmp_path: Path) -> None:
    assert list(read_tasks(None, None, 1)) == []
    with pytest.raises(Exception, match="absent"):
        list(read_tasks(tmp_path / "absent", None, 1))
