"""The quality protocol of the EFIM paper (arXiv 2505.21889): pass@1 of models with FIM and EFIM prompts.

As in the authors' own driver (github.com/gty111/EFIM, benchmark/async_benchmark_humaneval.py): the tasks are those of
HumanEval-Infilling as published; EFIM cuts all text before the gap at a random character into prefix and increment; up
to 128 tokens are drawn; nothing but the model's own end ends a text. Nothing is healed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal, get_args

from rich.table import Table

from inference.engine.request import Request
from inference.text.prompts import tokenize_prompt
from midfill_lab.evaluation.runner import UNTIL_THE_END, Estimate, TaskSet, cell, share
from midfill_lab.evaluation.sandbox import Outcome, Sandbox
from midfill_lab.evaluation.tasks import Case, Split, Task
from protocol.messages import CompletionRequest, Prompt, Sampling

if TYPE_CHECKING:
    from inference.engine.interface import AnyEngine

Layout = Literal["FIM", "EFIM"]

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
SPLITS: tuple[Split, ...] = ("single-line", "multi-line", "random-span")
NEW_TOKENS = 128
TEMPERATURE, TOP_K, TOP_P = 0.2, 20, 0.95


@dataclass(frozen=True, slots=True)
class PaperRow:
    """How many programs of a split pass with a model and a layout."""

    model: str
    layout: Layout
    split: Split
    outcomes: tuple[Outcome, ...]

    @property
    def pass_at_1(self) -> Estimate | None:
        return share([outcome == "passed" for outcome in self.outcomes])

    def as_json(self) -> dict[str, Any]:
        """The row for JSON: shares from 0 to 1."""
        passed = self.pass_at_1
        return {
            "model": self.model,
            "layout": self.layout,
            "split": self.split,
            "n": len(self.outcomes),
            "pass_at_1": passed and round(passed.value, 4),
            "pass_at_1_interval": passed and [round(bound, 4) for bound in passed.interval],
            "timed_out": self.outcomes.count("timed out"),
        }


@dataclass(frozen=True, slots=True)
class PaperEvaluator:
    """Evaluates rows of one model. `seed` chooses cuts and draws."""

    model: str
    engine: AnyEngine
    sandbox: Sandbox
    seed: int

    def row(self, tasks: TaskSet, layout: Layout, progress: Callable[[], None]) -> PaperRow:
        """Evaluate one row; calls `progress` after every task."""
        outcomes: dict[int, Outcome] = {}
        requests = [self.request(task, layout, number) for number, task in enumerate(tasks.tasks)]
        for number, text in self._texts(requests):
            task = tasks.tasks[number]
            outcomes[number] = self.sandbox.run(Case(task, "").program(text), task.test or "")
            progress()
        return PaperRow(self.model, layout, tasks.split, tuple(outcomes[number] for number in sorted(outcomes)))

    def request(self, task: Task, layout: Layout, number: int) -> CompletionRequest:
        """The request of a task, as token ids, so that no text but the model's own end stops it."""
        engine = self.engine
        prompt = lay_prompt(task, layout, self.seed)
        tokenized = tokenize_prompt(prompt, engine.tokenizer, engine.info.context_tokens, NEW_TOKENS)
        return CompletionRequest(
            f"evaluation/{number}",
            Prompt("", "", token_ids=tuple(tokenized.token_ids)),
            NEW_TOKENS,
            UNTIL_THE_END,
            reuse=False,
            sampling=Sampling(TEMPERATURE, TOP_P, TOP_K, self.seed + number),
        )

    def _texts(self, specs: Sequence[CompletionRequest]) -> Iterator[tuple[int, str]]:
        """The completions and the places of their requests, in the order of their ends; the engine is kept busy."""
        waiting = deque(enumerate(map(Request, specs)))
        at_work: list[tuple[int, Request]] = []
        while waiting or at_work:
            while waiting and len(at_work) < self.engine.capacity:
                at_work.append(waiting.popleft())
                self.engine.begin(at_work[-1][1])
            if not any(request.has_ended for _, request in at_work):
                self.engine.step()
            ended = [(number, request) for number, request in at_work if request.has_ended]
            at_work = [(number, request) for number, request in at_work if not request.has_ended]
            yield from ((number, request.completion().text) for number, request in ended)


def lay_prompt(task: Task, layout: Layout, seed: int) -> Prompt:
    """The prompt of a task; EFIM's cut is the same for the same seed, and leaves both parts a character at least."""
    if layout == "FIM" or len(task.before) < 2:
        return Prompt(task.before, task.after)
    at = Random(f"{seed}/paper/{task.name}").randint(1, len(task.before) - 1)
    return Prompt(task.before[:at], task.after, task.before[at:])


def report(rows: Sequence[PaperRow]) -> Table:
    """pass@1 of every model and layout, a column per split, with the 95 % intervals below the figures."""
    splits = tuple(dict.fromkeys(row.split for row in rows))
    counts = {row.split: len(row.outcomes) for row in rows}
    table = Table(
        "model",
        "prompts",
        *(f"{split}, n = {counts[split]}" for split in splits),
        title=f"pass@1, temperature {TEMPERATURE}, top-k {TOP_K}, top-p {TOP_P}, {NEW_TOKENS} tokens",
        title_justify="left",
    )
    found = {(row.model, row.layout, row.split): row for row in rows}
    for model, layout in dict.fromkeys((row.model, row.layout) for row in rows):
        figures = (cell(found[model, layout, split].pass_at_1, "%") for split in splits)
        table.add_row(model, layout, *figures)
    return table
