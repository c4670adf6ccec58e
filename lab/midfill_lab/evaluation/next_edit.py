"""Scores next edits on scenarios: how near the proposed edit is to the ideal one, and how often silence is kept.

The measures are those of cursortab.nvim's evaluation (server/eval/metrics), so that its published figures compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from rich.table import Table

from lsp_server.documents.documents import Document, Position, split_lines
from lsp_server.next_edit.formats import BadAnswer, LaidPrompt, NextEditFormat, edit_of
from lsp_server.next_edit.gate import Moment, proposal_of, reason_not_to_ask, reason_not_to_show
from midfill_lab.evaluation.runner import UNTIL_THE_END
from midfill_lab.evaluation.scenarios import Scenario, read_answers, recorder_of
from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest, FinishReason, Prompt

_LONGEST_NGRAM = 6
_BETA_SQUARED = 4

Stage = Literal["as answered", "through the gate"]


def delta_chrf(before: str, candidate: str, expected: str) -> float:
    """How similar the lines are that candidate and ideal text change of the text before, 0 to 100."""
    return chrf(_changed(before, candidate), _changed(before, expected))


def chrf(candidate: str, expected: str) -> float:
    """The mean F2 score over the n-grams of characters, n from 1 to 6, x 100; two empty texts have 100."""
    if not candidate and not expected:
        return 100.0
    scores = []
    for n in range(1, _LONGEST_NGRAM + 1):
        given, wanted = _ngrams(candidate, n), _ngrams(expected, n)
        if not given and not wanted:
            continue
        common = (given & wanted).total()
        precision, recall = common / max(1, given.total()), common / max(1, wanted.total())
        weight = _BETA_SQUARED * precision + recall
        scores.append((1 + _BETA_SQUARED) * precision * recall / weight if weight else 0.0)
    return 100 * fmean(scores)


def _ngrams(text: str, n: int) -> Counter[str]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


def _changed(before: str, after: str) -> str:
    old, new = before.split("\n"), after.split("\n")
    head = tail = 0
    most = min(len(old), len(new))
    while head < most and old[head] == new[head]:
        head += 1
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return "\n".join(new[head : len(new) - tail])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was shown at one cursor of a scenario; `reason` says why nothing was."""

    scenario: Scenario
    cursor: tuple[int, int]
    text: str  # of the document, with the edit
    reason: str | None

    @property
    def shows(self) -> bool:
        return self.reason is None

    @property
    def delta_chrf(self) -> float | None:
        """None where nothing should be shown."""
        expected = self.scenario.expected
        return None if expected is None else delta_chrf(self.scenario.text, self.text, expected)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one stage: deltaChrF 0 to 100, rates 0 to 1."""

    delta_chrf: float
    shown: int
    wanted: int
    quiet: int
    silent: int

    @property
    def score(self) -> float:
        """deltaChrF / 100 times the harmonic mean of shown and quiet rate."""
        shown, quiet = self.shown / max(1, self.wanted), self.quiet / max(1, self.silent)
        return self.delta_chrf / 100 * (2 * shown * quiet / (shown + quiet) if shown + quiet else 0.0)


def figures_of(outcomes: Sequence[Outcome]) -> Figures:
    """The figures of the outcomes."""
    similar = [score for outcome in outcomes if (score := outcome.delta_chrf) is not None]
    silent = [outcome for outcome in outcomes if outcome.delta_chrf is None]
    return Figures(
        delta_chrf=fmean(similar) if similar else 0.0,
        shown=sum(outcome.shows for outcome in outcomes if outcome.delta_chrf is not None),
        wanted=len(similar),
        quiet=sum(not outcome.shows for outcome in silent),
        silent=len(silent),
    )


@dataclass(frozen=True, slots=True)
class Replied:
    """A prompt, and what a model wrote for it."""

    prompt: LaidPrompt
    place: Position  # the cursor's
    layout: NextEditFormat
    text: str
    finish_reason: FinishReason


Cursor = tuple[int, int]
Reply = Callable[[Scenario, Cursor], Replied | str | None]
"""A model's reply at one of a scenario's cursors; why it is not asked; None if its answer there is not known."""


def replies_of(answer: Callable[[CompletionRequest], Completion], layout: NextEditFormat) -> Reply:
    """What a model answers to prompts of the format; every prompt is computed cold."""

    def reply(scenario: Scenario, cursor: Cursor) -> Replied | str:
        lines, place = split_lines(scenario.text), scenario.clamped(cursor)
        newest = scenario.events[-1] if scenario.events else None
        try:
            anchor = layout.anchor(scenario.path, lines, place.line, scenario.events, newest=newest)
            prompt = layout.lay(anchor, lines, place)
        except BadInput as error:
            return str(error)
        request = CompletionRequest(
            "evaluation",
            Prompt("", "", marked=prompt.parts),
            layout.max_tokens,
            UNTIL_THE_END,
            reuse=False,
            stop_texts=layout.stop_texts,
            copies=prompt.draft,
        )
        completion = answer(request)
        return Replied(prompt, place, layout, completion.text, completion.finish_reason)

    return reply


def replies_recorded(folder: Path, model: str) -> Reply:
    """The answers that were recorded of the model, each at the cursor that its prompt shows."""
    recorder = recorder_of(model)

    def reply(scenario: Scenario, cursor: Cursor) -> Replied | None:
        recorded = read_answers(folder, scenario, model)
        if not recorded or recorded[0].cursor(scenario) != cursor:
            return None
        place = recorder.place(scenario, cursor)
        prompt = recorder.lay(scenario, place)
        return Replied(prompt, place, recorder.layout, recorded[0].text, recorded[0].finish_reason)

    return reply


def evaluate(scenarios: Sequence[Scenario], reply: Reply, on_case: Callable[[], None]) -> dict[Stage, list[Outcome]]:
    """The outcome at each cursor that has a reply, before the gate and behind it."""
    found: dict[Stage, list[Outcome]] = {"as answered": [], "through the gate": []}
    for scenario in scenarios:
        for cursor in scenario.cursors:
            on_case()
            moment = Moment(trigger="command" if scenario.by_command else "pause", changed=scenario.modified)
            if (reason := reason_not_to_ask(moment)) is not None:
                found["through the gate"].append(Outcome(scenario, cursor, scenario.text, reason))
                continue
            replied = reply(scenario, cursor)
            if isinstance(replied, Replied):
                found["as answered"].append(_as_answered(scenario, cursor, replied))
                found["through the gate"].append(_through_the_gate(scenario, cursor, replied))
            elif replied is not None:
                for outcomes in found.values():
                    outcomes.append(Outcome(scenario, cursor, scenario.text, replied))
    return found


def _as_answered(scenario: Scenario, cursor: Cursor, replied: Replied) -> Outcome:
    """The region replaced by what the model wrote, as the published figures have it."""
    try:
        answer = replied.layout.read(replied.prompt, replied.text, replied.finish_reason)
    except BadAnswer as error:
        return Outcome(scenario, cursor, scenario.text, str(error))
    if answer.region == replied.prompt.region:
        return Outcome(scenario, cursor, scenario.text, "no edit")
    lines, anchor = split_lines(scenario.text), replied.prompt.anchor
    region = answer.region if anchor.last < len(lines) else answer.region[:-1]
    text = "".join(lines[: anchor.first]) + region + "".join(lines[anchor.last :])
    return Outcome(scenario, cursor, text, None)


def _through_the_gate(scenario: Scenario, cursor: Cursor, replied: Replied) -> Outcome:
    """The edit as an editor would be given it, if the gate lets it pass."""
    document = Document.from_text(scenario.path, "", 0, scenario.text)
    prompt = replied.prompt
    try:
        answer = replied.layout.read(prompt, replied.text, replied.finish_reason)
    except BadAnswer as error:
        return Outcome(scenario, cursor, scenario.text, str(error))
    replacement = edit_of(document.lines, prompt, answer)
    proposal = proposal_of(document.lines, prompt, answer, replied.place, scenario.events)
    reason = reason_not_to_show(proposal)
    if reason is None and replacement is not None:
        document.apply(replacement.edit)
    return Outcome(scenario, cursor, document.text, reason)


def table(found: Mapping[Stage, Sequence[Outcome]], title: str) -> Table:
    """The figures of both stages."""
    rows = Table(title=title, title_justify="left")
    rows.add_column("")
    for column in ("score", "deltaChrF", "shown", "quiet"):
        rows.add_column(column, justify="right")
    for stage, outcomes in found.items():
        figures = figures_of(outcomes)
        shown, quiet = f"{figures.shown} of {figures.wanted}", f"{figures.quiet} of {figures.silent}"
        rows.add_row(stage, f"{figures.score:.3f}", f"{figures.delta_chrf:.1f}", shown, quiet)
    return rows


def reasons(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How often each rule kept silence."""
    return Counter(outcome.reason for outcome in outcomes if outcome.reason is not None)


def row_object(stage: Stage, outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON."""
    return {
        "stage": stage,
        "scenario": outcome.scenario.name,
        "cursor": [outcome.cursor[0] + 1, outcome.cursor[1]],
        "shown": outcome.shows,
        "reason": outcome.reason,
        "delta_chrf": outcome.delta_chrf,
    }
