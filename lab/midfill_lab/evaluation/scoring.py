"""Scores one completion, and turns many scores into a figure with its interval."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from rapidfuzz.distance import Levenshtein

from midfill_lab.evaluation.sandbox import Outcome
from midfill_lab.evaluation.tasks import Case

_WORD = re.compile(r"\w*")
_Z = 1.959964  # of the normal distribution, two-sided 95 %
_RESAMPLES = 2000

Interval = tuple[float, float]


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
    expected, given, *others = map(
        str.rstrip if case.task.is_of_lines else str, (case.expected, completion, *alternatives)
    )
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
