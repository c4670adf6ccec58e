"""Compares the documents after acceptance with those that were to be had, and counts what became of the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from rich.table import Table

from midfill_lab.evaluation.fidelity.places import Kind, Place

Verdict = Literal["as written", "nothing", "cut", "doubled closer", "white space", "other"]
VERDICTS: tuple[Verdict, ...] = ("as written", "nothing", "cut", "doubled closer", "white space", "other")

_CLOSERS = ")]}\"'`"


def verdict(place: Place, accepted: str | None) -> Verdict:
    """What became of the model's text; `accepted` is the document afterwards, None without a suggestion."""
    if (place.head + place.tail if accepted is None else accepted) == place.expected:
        return "as written"
    if accepted is None:
        return "nothing"
    if "".join(accepted.split()) == "".join(place.expected.split()):
        return "white space"
    same = _common_length(accepted, place.expected)
    if accepted[same : same + 1] in tuple(_CLOSERS) and accepted[same + 1 :] == place.expected[same:]:
        return "doubled closer"
    behind = len(place.tail.lstrip(_CLOSERS))
    if len(accepted) < len(place.expected) and same >= len(accepted.rstrip()) - behind - len(_CLOSERS):
        return "cut"
    return "other"


def _common_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def row_object(place: Place, accepted: str | None, said: Verdict) -> dict[str, object]:
    """A place as JSON."""
    where: dict[str, object] = {"place": place.name, "language": place.language_id, "kind": place.kind, "verdict": said}
    return where if said == "as written" else {**where, "model": place.model, "accepted": accepted}


Counts = Mapping[tuple[str, Kind], Counter[Verdict]]


def count(verdicts: Iterable[tuple[Place, Verdict]]) -> dict[tuple[str, Kind], Counter[Verdict]]:
    """How often each verdict fell, by language and kind of place."""
    counts: dict[tuple[str, Kind], Counter[Verdict]] = {}
    for place, said in verdicts:
        counts.setdefault((place.language_id, place.kind), Counter())[said] += 1
    return counts


def table(counts: Counts) -> Table:
    """A row for each language and kind of place, and a row for each kind over all languages."""
    shown = Table(title="What the model writes, after acceptance")
    for heading in ("language", "place", "n", "% as written", *VERDICTS[1:]):
        shown.add_column(heading, justify="left" if heading in ("language", "place") else "right")
    for (language_id, kind), found in sorted(counts.items()):
        shown.add_row(language_id, kind, *_figures(found))
    shown.add_section()
    for kind in sorted({kind for _, kind in counts}):
        sums = sum((found for (_, other), found in counts.items() if other == kind), Counter[Verdict]())
        shown.add_row("all", kind, *_figures(sums))
    return shown


def _figures(found: Counter[Verdict]) -> list[str]:
    share = 100 * found["as written"] / found.total()
    return [str(found.total()), f"{share:.1f}", *(str(found[said] or "") for said in VERDICTS[1:])]
