"""What the command prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from midfill.commands import app

TRACE = Path(__file__).parents[2] / "data" / "rustcode-3000-3400.json.gz"


def replay(*options: str) -> str:
    done = CliRunner().invoke(app, ["replay", str(TRACE), "--dry", "--limit", "3", *options], env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return done.output


def test_the_table_has_a_legend_and_says_who_was_told_of_moves() -> None:
    printed = replay("--strategies", "spm,efim", "--moves")
    told = next(line for line in printed.splitlines() if "moves announced" in line)
    assert [cell.strip() for cell in told.split("│")[2:4]] == ["no", "yes"]
    for word in ("hit:", "partial:", "miss:", "prefetched:", "p95:", "ms:"):
        assert word in printed


def test_it_says_what_it_wrote(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    printed = replay("--strategies", "efim", "--json", str(figures))
    assert f"wrote {figures}" in printed
    assert json.loads(figures.read_text())["requests"] == 3
