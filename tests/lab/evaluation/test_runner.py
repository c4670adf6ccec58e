"""A row from tasks: what is asked of the model, and what is made of its answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference.checkpoints.checkpoint import find_checkpoint
from lsp_server.prompts.windows import WindowBudget
from midfill_lab.evaluation.human_eval import read_benchmark
from midfill_lab.evaluation.runner import Complete, Evaluator, Row, TaskSet, token_ends_of
from midfill_lab.evaluation.sandbox import Sandbox
from midfill_lab.evaluation.tasks import FORMATS, SPLITS, Split
from protocol.messages import Prompt, StopRule

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
    row = evaluator(knows(split), Sandbox(allow_unconfined=True)).row(
        task_set(split), "token", "efim", lambda: done.append(None)
    )
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
