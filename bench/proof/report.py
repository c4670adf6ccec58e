"""Prints the outcomes of a proof as one table, short enough for the end of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proof.runner import Outcome

WIDTH = 118
MOST_CHARS = 11_000
MOST_LINES = 20
"""Lines of a section; with more, the first and the last ones are kept."""
MOST_FAILED = 6
"""Failed checks that a section names."""

KINDS = ("pass", "measured", "FAIL", "ERROR", "cut", "skipped")
BAD = ("FAIL", "ERROR", "cut")


def table(outcomes: Sequence[Outcome], facts: Mapping[str, object]) -> str:
    """The facts, each section with its failed checks and its lines, and the verdict; at most MOST_CHARS."""
    texts = (_table(outcomes, facts, lines) for lines in range(MOST_LINES, -1, -1))
    text = next((text for text in texts if len(text) <= MOST_CHARS), _table(outcomes, facts, 0))
    return text[-MOST_CHARS:]


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Whether no section failed or was cut short, and the sections of each verdict."""
    of_kind = {kind: [str(each.number) for each in outcomes if each.verdict == kind] for kind in KINDS}
    found = "; ".join(f"{kind}: {', '.join(numbers)}" for kind, numbers in of_kind.items() if numbers)
    return f"{'NOT PROVEN' if has_failed(outcomes) else 'PROVEN'} ({found})"


def has_failed(outcomes: Sequence[Outcome]) -> bool:
    """Whether any section failed or was cut short, or none ran."""
    return not outcomes or any(outcome.verdict in BAD for outcome in outcomes)


def _table(outcomes: Sequence[Outcome], facts: Mapping[str, object], most: int) -> str:
    lines = ["=" * WIDTH, *_cut((f"{name}: {value}" for name, value in facts.items()), WIDTH), "-" * WIDTH]
    for outcome in sorted(outcomes, key=lambda outcome: outcome.number):
        failed = [check for check in outcome.checks if not check.passed]
        count = len(outcome.checks)
        marks = f"{count - len(failed)} of {count} checks" if count else ""
        took = f"{outcome.seconds:6.1f} of {outcome.planned_s:3.0f} s"
        lines.append(f"{outcome.number:>2}  {outcome.name:<16}{outcome.verdict:<10}{took}  {marks}".rstrip())
        own = [outcome.note] if outcome.note else []
        own += [f"NOT: {check.what} ({check.found})" for check in failed[: min(MOST_FAILED, 2 + most)]]
        lines += [f"      {line}" for line in _cut([*own, *_ends(outcome.lines, most)], WIDTH - 6)]
    return "\n".join([*lines, "-" * WIDTH, verdict(outcomes)])


def _ends(lines: Sequence[str], most: int) -> list[str]:
    """The first and the last lines, at most so many."""
    if len(lines) <= most:
        return list(lines)
    last = most // 2
    return [*lines[: most - last], *lines[len(lines) - last :]]


def _cut(lines: Iterable[str], width: int) -> list[str]:
    return [" ".join(line.split("\n"))[:width] for line in lines]
