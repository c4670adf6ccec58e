"""A row from tasks: what is asked of the model, how its answers are judged, and the intervals of the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference.checkpoints.checkpoint import find_checkpoint
from lsp_server.prompts.anchors import WindowBudget
from midfill_lab.evaluation.runner import Complete, Evaluator, Row, TaskSet, mean, score, share, token_ends_of
from midfill_lab.evaluation.sandbox import Sandbox
from midfill_lab.evaluation.tasks import FORMATS, SPLITS, Case, Split, Task, read_benchmark
from protocol.messages import Prompt, StopRule

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


BENCHMARK = read_benchmark(Path(__file__).with_name("data"))


def task_set(split: Split) -> TaskSet:
    return TaskSet("human-eval-infilling", split, tuple(BENCHMARK[split]))


def knows(split: Split) -> Complete:
    """A model that knows the benchmark by heart."""
    texts = {task.before + task.middle + task.after: task for task in BENCHMARK[split]}

    def complete(prompt: Prompt, stop: StopRule) -> list[str]:
        left = prompt.prefix + prompt.increment
        for text in texts:
            if text.startswith(left) and text.endswith(prompt.suffix):
                return [text[len(left) : len(text) - len(prompt.suffix)]]
        raise AssertionError(left)

    return complete


def evaluator(complete: Complete, sandbox: Sandbox | None) -> Evaluator:
    return Evaluator(complete, lambda text: list(range(0, len(text), 3)), WindowBudget(), 0, sandbox)


def values(row: Row, *names: str) -> list[float | None]:
    return [figure and figure.value for figure in (row.figures[name] for name in names)]


@pytest.mark.parametrize("split", SPLITS)
def test_a_perfect_model_is_perfect(split: Split) -> None:
    done: list[None] = []
    row = evaluator(knows(split), Sandbox(allow_unconfined=True)).row(task_set(split), "token", "efim", lambda: done.append(None))
    assert values(row, "exact_match", "pass_at_1", "edit_similarity") == [1.0, 1.0, 1.0]
    assert row.n == len(done) == 6
    assert row.timed_out == 0


def test_a_useless_model_is_useless() -> None:
    row = evaluator(lambda prompt, stop: ["?"], Sandbox(allow_unconfined=True)).row(
        task_set("random-span"), "character", "psm", lambda: None
    )
    assert values(row, "exact_match", "pass_at_1", "first_word") == [0.0, 0.0, 0.0]


def test_one_of_all_texts_may_be_right() -> None:
    knowing = knows("single-line")

    def complete(prompt: Prompt, stop: StopRule) -> list[str]:
        return ["?", *knowing(prompt, stop), "!"]

    alone = evaluator(complete, None)
    assert "any_exact" not in alone.row(task_set("single-line"), "given", "efim", lambda: None).figures
    row = replace(alone, with_alternatives=True).row(task_set("single-line"), "given", "efim", lambda: None)
    assert values(row, "exact_match", "any_exact") == [0.0, 1.0]


def test_without_a_sandbox_nothing_is_run() -> None:
    row = evaluator(knows("single-line"), None).row(task_set("single-line"), "given", "psm", lambda: None)
    assert values(row, "pass_at_1", "exact_match") == [None, 1]


def test_a_line_stops_at_its_newline_and_a_span_at_the_models_end() -> None:
    stops: dict[Split, set[StopRule]] = {split: set() for split in SPLITS}
    for split in SPLITS:
        for form in FORMATS:

            def complete(prompt: Prompt, stop: StopRule, split: Split = split) -> list[str]:
                stops[split].add(stop)
                return [""]

            evaluator(complete, None).row(task_set(split), "character", form, lambda: None)
    until_the_end = {key: {StopRule(indent=0)} for key in ("multi-line", "random-span", "random-span-light")}
    assert stops == {"single-line": {StopRule()}} | until_the_end


def test_a_sample_is_drawn_by_the_seed_and_keeps_its_order() -> None:
    tasks = task_set("single-line")
    drawn = tasks.sample(3, seed=1)
    assert drawn == tasks.sample(3, seed=1)
    assert len(drawn.tasks) == 3
    assert [task for task in tasks.tasks if task in drawn.tasks] == list(drawn.tasks)
    assert {tasks.sample(3, seed).tasks for seed in range(10)} != {drawn.tasks}
    assert tasks.sample(None, 0) == tasks.sample(99, 0) == tasks


def test_token_ends_are_where_decoded_tokens_end(tiny_model: str) -> None:
    tokenizer = find_checkpoint(tiny_model).tokenizer()
    ends = token_ends_of(tokenizer)("value = größe\n  return")
    assert ends[-1] == len("value = größe\n  return")
    assert ends == sorted(ends)
    assert len(ends) == tokenizer.count_tokens("value = größe\n  return")
