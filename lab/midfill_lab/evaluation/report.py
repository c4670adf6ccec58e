"""Formats an evaluation's result: a table for the terminal, and a JSON object per row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from midfill_lab.evaluation.runner import Row
from midfill_lab.evaluation.scoring import Estimate

_COLUMNS = ("exact match", "pass@1", "edit similarity", "first word", "one of all texts")  # of the figures


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
        **{
            f"{name}_interval": each and [round(bound, 4) for bound in each.interval]
            for name, each in row.figures.items()
        },
        "first_word_n": first_word.n if first_word else 0,
        "timed_out": row.timed_out,
        **common,
    }
