"""Runs an evaluation: every case of every row through the model, its tests through the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from lsp_server.prompts.windows import WindowBudget
from midfill_lab.evaluation.sandbox import Sandbox
from midfill_lab.evaluation.scoring import Estimate, Score, mean, score, share
from midfill_lab.evaluation.tasks import Case, Cut, Format, Split, Task, TokenEnds, lay_prompt, place_cursor
from protocol.messages import Completion, CompletionRequest, Prompt, StopRule

if TYPE_CHECKING:
    from inference.engine.engine import Engine
    from inference.text.tokenization import TextTokenizer

UNTIL_THE_END = StopRule(indent=0)  # no line is indented by less, so only an end token or the limit ends it

Complete = Callable[[Prompt, StopRule], Sequence[str]]
"""Returns a completion, and its alternatives if they are measured."""
OnTaskDone = Callable[[], None]


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of one split of one benchmark."""

    benchmark: str
    split: Split
    tasks: tuple[Task, ...]

    def sample(self, limit: int | None, seed: int) -> TaskSet:
        """At most `limit` of them, drawn by the seed, in their order."""
        if limit is None or limit >= len(self.tasks):
            return self
        chosen = sorted(Random(f"{seed}/{self.split}").sample(range(len(self.tasks)), limit))
        return TaskSet(self.benchmark, self.split, tuple(self.tasks[index] for index in chosen))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result: how well one format did on one set of tasks with one kind of cut."""

    benchmark: str
    split: Split
    form: Format
    cut: Cut
    n: int
    figures: Mapping[str, Estimate | None]  # exact_match, pass_at_1, edit_similarity, first_word, perhaps any_exact
    timed_out: int


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates rows with a model, windows, and a sandbox if code may run."""

    complete: Complete
    token_ends: TokenEnds
    budget: WindowBudget
    seed: int
    sandbox: Sandbox | None
    with_alternatives: bool = False

    def row(self, tasks: TaskSet, cut: Cut, form: Format, progress: OnTaskDone) -> Row:
        """Evaluate one row; calls `progress` after every case."""
        return _row(tasks, cut, form, self.scores(tasks, cut, form, progress), self.with_alternatives)

    def scores(self, tasks: TaskSet, cut: Cut, form: Format, progress: OnTaskDone) -> list[Score]:
        """A row's scores case by case, so that two rows of the same tasks can be compared in pairs."""
        scores = []
        for task in tasks.tasks:
            scores.append(self._score(place_cursor(task, cut, self.token_ends, self.seed), form))
            progress()
        return scores

    def _score(self, case: Case, form: Format) -> Score:
        completion, *alternatives = self.complete(lay_prompt(case, form, self.budget), _stop(case.task))
        outcome = None
        if self.sandbox is not None and case.task.test is not None:
            outcome = self.sandbox.run(case.program(completion), case.task.test)
        return score(case, completion, outcome, alternatives)


def _stop(task: Task) -> StopRule:
    return StopRule() if task.split == "single-line" else UNTIL_THE_END


def _row(tasks: TaskSet, cut: Cut, form: Format, scores: Sequence[Score], with_alternatives: bool) -> Row:
    outcomes = [score.outcome for score in scores if score.outcome is not None]
    any_exact = {"any_exact": share([score.any_exact for score in scores])} if with_alternatives else {}
    return Row(
        benchmark=tasks.benchmark,
        split=tasks.split,
        form=form,
        cut=cut,
        n=len(scores),
        figures={
            "exact_match": share([score.exact for score in scores]),
            "pass_at_1": share([outcome == "passed" for outcome in outcomes]),
            "edit_similarity": mean([score.similarity for score in scores]),
            "first_word": share([score.first_word for score in scores if score.first_word is not None]),
            **any_exact,
        },
        timed_out=outcomes.count("timed out"),
    )


@dataclass(frozen=True, slots=True)
class Asking:
    """What each completion is asked for, besides its prompt."""

    max_new_tokens: int
    alternatives: int = 0
    best_of: int = 1

    def request(self, prompt: Prompt, stop: StopRule) -> CompletionRequest:
        """Greedy, and computed cold, so that resident KV cannot affect a figure."""
        return CompletionRequest(
            "evaluation",
            prompt,
            self.max_new_tokens,
            stop,
            reuse=False,
            alternatives=self.alternatives,
            best_of=self.best_of,
        )


def completes_with(engine: Engine, asking: Asking) -> Complete:
    """The engine's completions."""
    return lambda prompt, stop: texts_of(engine.complete(asking.request(prompt, stop)))


def texts_of(completion: Completion) -> tuple[str, ...]:
    """Its text, and its alternatives."""
    return completion.text, *(other.text for other in completion.alternatives)


def token_ends_of(tokenizer: TextTokenizer) -> TokenEnds:
    """Where the tokens of a text end, for this tokenizer; ends within a character are left out."""
    return lambda text: list(_ends(tokenizer, text))


def _ends(tokenizer: TextTokenizer, text: str) -> Iterator[int]:
    done = 0
    stream = tokenizer.text_stream()
    for token_id in tokenizer.encode(text):
        stream.push(token_id)
        # Resetting the text avoids a copy of the whole text at every token.
        done, stream.text = done + len(stream.text), ""
        yield done
