"""`midfill stats`, as a table, a page and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lsp_server.usage.statistics import Group, Statistics, add_to_file, one_answer, statistics_file, total
from midfill.commands import app

TODAY = Group(date.today().isoformat(), "bundled", "python")
LAST_WEEK = Group((date.today() - timedelta(days=7)).isoformat(), "[red]other</script>", "go")
LAST_YEAR = Group((date.today() - timedelta(days=365)).isoformat(), "tiny", "c")
SOME = total(
    [
        Statistics(shown=10, accepted=3, accepted_partly=1, typed_through=2, dismissed=4, accepted_characters=100),
        Statistics(watched_30s=100, kept_30s=90, watched_10min=100, kept_10min=75, typed_characters=300),
        Statistics(hits=9, misses=1),
        one_answer(7.0),
    ]
)


@pytest.fixture(autouse=True)
def _own_statistics() -> Iterator[None]:
    statistics_file().unlink(missing_ok=True)
    yield
    statistics_file().unlink(missing_ok=True)


def count(*groups: Group) -> None:
    for group in groups:
        add_to_file(statistics_file(), {(group, name): number for name, number in SOME.counts})


def run(*arguments: str, answer: str = "", code: int = 0) -> str:
    result = CliRunner().invoke(app, ["stats", *arguments], input=answer, env={"COLUMNS": "140"})
    assert result.exit_code == code, result.output
    return result.output


def test_table() -> None:
    count(TODAY, LAST_WEEK, LAST_YEAR)
    shown = run()
    assert "30 suggestions shown: 9 accepted at once, 3 in part, 6 typed by hand, 12 dismissed" in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    assert rows["all"] == ["30", "40%", "90%", "75%", "25%", "90%", "7", "7"]
    row = ["10", "40%", "90%", "75%", "25%", "90%", "7", "7"]
    assert [rows[name] for name in (TODAY.day, LAST_WEEK.day, "bundled", LAST_WEEK.model, "python", "go")] == [row] * 6
    assert str(statistics_file()) in shown


def test_a_language_without_suggestions_has_no_row() -> None:
    count(TODAY)
    add_to_file(statistics_file(), {(TODAY._replace(language="cobol"), "typed_characters"): 5})
    assert "cobol" not in run()


def test_days() -> None:
    count(TODAY, LAST_WEEK, LAST_YEAR)
    shown = [json.loads(run("--json", *days))["shown"] for days in ([], ["--days", "7"], ["--days", "8"])]
    assert shown == [30, 10, 20]
    run("--days", "0", code=2)


def test_json() -> None:
    count(TODAY, TODAY._replace(language="go"))
    numbers = json.loads(run("--json"))
    assert (numbers["shown"], numbers["kept_share_10min"], numbers["answers_by_ms"]["7"]) == (20, 0.75, 2)
    assert numbers["time_to_suggestion_ms"] == {"p50": 7, "p95": 7, "p99": 7}
    assert [(row["language"], row["shown"]) for row in numbers["by_language"]] == [("go", 10), ("python", 10)]
    assert [row["model"] for row in numbers["by_model"]] == ["bundled"]


def test_before_anything_was_shown(tmp_path: Path) -> None:
    add_to_file(statistics_file(), {(TODAY, "typed_characters"): 5})
    assert "No suggestion was shown yet" in run()
    assert json.loads(run("--json"))["kept_share_30s"] is None
    run("--html", str(tmp_path / "page.html"))
    assert "No suggestion was shown" in (tmp_path / "page.html").read_text()


def test_page(tmp_path: Path) -> None:
    count(TODAY, LAST_WEEK)
    page = tmp_path / "page.html"
    assert str(page) in run("--html", str(page))
    text = page.read_text(encoding="utf-8")
    assert "20 suggestions shown: 6 accepted at once" in re.sub(r"<[^>]+>", "", text)
    assert "default-src 'none'" in text
    assert "[red]other&lt;/script&gt;" in text
    assert "<script" not in text
    assert "[red]other</script>" not in text


def test_reset() -> None:
    count(TODAY)
    run("--reset", answer="n\n")
    assert statistics_file().exists()
    run("--reset", answer="y\n")
    assert not statistics_file().exists()
    statistics_file().write_bytes(b"damaged")
    run("--reset", "--yes")
    assert "No suggestion" in run()
