"""Runs an evaluation: each case of each row through an engine, its tests through the sandbox, its scores in a table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from anyio.from_thread import start_blocking_portal
from rapidfuzz.distance import Levenshtein
from rich.console import Group, RenderableType
from rich.table import Table

from inference.text.prompts import short_prompt
from lsp_server.prompts.anchors import WindowBudget
from midfill_lab.evaluation.sandbox import Outcome, Sandbox
from midfill_lab.evaluation.tasks import Case, Cut, Format, Split, Task, TokenEnds, lay_prompt, place_cursor
from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest, CoreStatus, Prompt, StopRule
from protocol.settings import Settings

if TYPE_CHECKING:
    from inference.engine.interface import AnyEngine
    from inference.text.tokenization import TextTokenizer

_WORD = re.compile(r"\w*")
_Z = 1.959964  # of the normal distribution, two-sided 95 %
_RESAMPLES = 2000

Interval = tuple[float, float]
UNTIL_THE_END = StopRule(indent=0)  # no line is indented by less, so only an end token or the limit ends it

Complete = Callable[[Prompt, StopRule], Sequence[str]]
"""Returns a completion, and its alternatives if they are measured."""
OnTaskDone = Callable[[], None]
_COLUMNS = ("exact match", "pass@1", "edit similarity", "first word", "one of all texts")  # of the figures


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one case; None where a measure does not apply."""

    exact: bool
    similarity: float
    first_word: bool | None  # None if the cursor is not inside a word
    outcome: Outcome | None = None  # None if no code was run
    any_exact: bool = False  # the completion, or one of its alternatives


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` cases and its 95 % interval."""

    value: float
    interval: Interval
    n: int


def score(case: Case, completion: str, outcome: Outcome | None = None, alternatives: Sequence[str] = ()) -> Score:
    """Score a completion by its text. White space at the end of whole lines does not count."""
    expected, given, *others = map(str.rstrip if case.task.is_of_lines else str, (case.expected, completion, *alternatives))
    similarity = Levenshtein.normalized_similarity(expected, given)
    return Score(expected == given, similarity, _first_word(case, completion), outcome, expected in (given, *others))


def _first_word(case: Case, completion: str) -> bool | None:
    """Whether the completion and the suffix finish the word at the cursor correctly."""
    after = case.task.after
    expected, given = _leading_word(case.expected + after), _leading_word(completion + after)
    inside = bool(expected) and bool(_WORD.fullmatch(case.left_of_cursor[-1:])) and case.left_of_cursor != ""
    return given == expected if inside else None


def _leading_word(text: str) -> str:
    word = _WORD.match(text)
    assert word is not None  # it also matches the empty text
    return word.group()


def share(hits: Sequence[bool]) -> Estimate | None:
    """The share of hits with Wilson's interval; None without values."""
    n = len(hits)
    if n == 0:
        return None
    value = sum(hits) / n
    middle, weight = value + _Z**2 / (2 * n), 1 + _Z**2 / n
    spread = _Z * math.sqrt(value * (1 - value) / n + _Z**2 / (4 * n**2))
    # Rounding must not push a bound past the value that it bounds.
    low, high = min(value, (middle - spread) / weight), max(value, (middle + spread) / weight)
    return Estimate(value, (max(0.0, low), min(1.0, high)), n)


def mean(values: Sequence[float]) -> Estimate | None:
    """The mean with a bootstrap interval (percentiles, always the same resamples); None for no values."""
    n = len(values)
    if n == 0:
        return None
    rng = Random("bootstrap")
    means = sorted(fmean(rng.choices(values, k=n)) for _ in range(_RESAMPLES))
    low, high = means[round(0.025 * _RESAMPLES)], means[round(0.975 * _RESAMPLES) - 1]
    return Estimate(fmean(values), (low, high), n)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A model that can be asked; `heals` is None if only the core knows whether it heals."""

    name: str
    title: str
    complete: Complete
    token_ends: TokenEnds
    chars_per_token: float
    heals: bool | None
    answer: Callable[[CompletionRequest], Completion]


@contextmanager
def opened(settings: Settings, healing: Literal["auto", "on", "off"]) -> Iterator[AnyEngine]:
    """The engine of the settings: in this process, or in the other one that they name."""
    from inference.loading.options import EngineOptions
    from inference.remote.connecting import open_engine

    engine = open_engine(
        EngineOptions(
            model=settings.model,
            engine=settings.engine,
            engine_key=settings.engine_key,
            device=settings.device,
            dtype=settings.dtype,
            weights=settings.weights,
            context_tokens=8192,
            store_budget_bytes=0,
            fim_format=settings.fim_format,
            healing=healing,
        )
    )
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def engine_in_process(settings: Settings, healing: Literal["auto", "on", "off"], asking: Asking) -> Iterator[Evaluated]:
    """The model of the settings, on their engine."""
    from inference.text.healing import wants_healing

    with opened(settings, healing) as engine:
        heals = wants_healing(healing, engine.tokenizer.format)
        yield Evaluated(
            settings.model,
            f"{settings.model} on {engine.info.device}, healing {'on' if heals else 'off'}",
            completes_with(engine, asking),
            token_ends_of(engine.tokenizer),
            engine.info.chars_per_token,
            heals,
            engine.complete,
        )


@contextmanager
def core_by_address(settings: Settings, asking: Asking) -> Iterator[Evaluated]:
    """The core that the setting `core` names; the errors of a connection if there is none.

    Its own settings decide on device, healing and the like. Every prompt is computed cold there, too.
    """
    from lsp_server.core_client.client import CoreClient
    from lsp_server.core_client.link import remote_endpoint

    status = CoreStatus("unloaded", "")

    def hear(heard: CoreStatus) -> None:
        nonlocal status
        status = heard

    def ask(prompt: Prompt, stop: StopRule, how: Asking = asking) -> tuple[str, ...]:
        return texts_of(portal.call(client.complete, how.request(prompt, stop)))

    with start_blocking_portal() as portal:  # a thread of its own serves the connection while tests run here
        client = portal.call(CoreClient.open, remote_endpoint(settings), hear)
        try:
            ask(Prompt("a = 1\n", "\n"), StopRule(), Asking(0))  # loads the model; the core then says what it is
            title = f"{status.model} on {status.device}, by the core at {settings.core}"
            answer = partial(portal.call, client.complete)
            yield Evaluated(status.model, title, ask, _no_token_ends, status.chars_per_token, None, answer)
        finally:
            portal.call(client.close)


def _no_token_ends(_: str) -> list[int]:
    raise BadInput("a core does not show where tokens end")


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
        scores = []
        for task in tasks.tasks:
            scores.append(self._score(place_cursor(task, cut, self.token_ends, self.seed), form))
            progress()
        return _row(tasks, cut, form, scores, self.with_alternatives)

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
    is_short: bool = False  # in an engine of this process alone, whose tokenizer says how much a short prompt has

    def request(self, prompt: Prompt, stop: StopRule) -> CompletionRequest:
        """Greedy, and computed cold, so that resident KV cannot affect a figure."""
        return CompletionRequest(
            "evaluation", prompt, self.max_new_tokens, stop, reuse=False, alternatives=self.alternatives, best_of=self.best_of
        )


def completes_with(engine: AnyEngine, asking: Asking) -> Complete:
    """The engine's completions."""

    def ask(prompt: Prompt, stop: StopRule) -> tuple[str, ...]:
        asked = short_prompt(prompt, engine.tokenizer.count_tokens) if asking.is_short else prompt
        return texts_of(engine.complete(asking.request(asked, stop)))

    return ask


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


def report(rows: Sequence[Row], title: str) -> RenderableType:
    """A table for each set of tasks; under each figure its 95 % interval."""
    tables = []
    for (benchmark, split, n), several in groupby(rows, key=lambda row: (row.benchmark, row.split, row.n)):
        table = Table(title=f"{benchmark}, {split}, n = {n}", title_justify="left")
        rows_of_table = list(several)
        table.add_column("cut")
        table.add_column("format")
        for column in _COLUMNS[: len(rows_of_table[0].figures)]:
            table.add_column(column, justify="right")
        for row in rows_of_table:
            table.add_row(row.cut, row.form, *(cell(figure, "%") for figure in row.figures.values()))
        tables.append(table)
    return Group(title, *tables, "Each figure has its 95 % interval below it.")


def cell(estimate: Estimate | None, unit: str = "") -> str:
    """A figure in percent, with its interval below it."""
    if estimate is None:
        return "-"
    low, high = estimate.interval
    return f"{estimate.value * 100:.1f}{unit}\n{low * 100:.1f} to {high * 100:.1f}"


def row_object(row: Row, heals: bool | None, common: dict[str, Any]) -> dict[str, Any]:
    """The row for JSON: shares from 0 to 1, null where nothing was measured; `common` goes at its end."""
    first_word = row.figures["first_word"]
    return {
        "benchmark": row.benchmark,
        "split": row.split,
        "format": row.form,
        "cut": row.cut,
        "healing": heals,
        "n": row.n,
        **{name: each and round(each.value, 4) for name, each in row.figures.items()},
        **{f"{name}_interval": each and [round(bound, 4) for bound in each.interval] for name, each in row.figures.items()},
        "first_word_n": first_word.n if first_word else 0,
        "timed_out": row.timed_out,
        **common,
    }
