"""A recorded session through a real language server over stdio and a real core, on the tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from midfill.commands import app

TRACE = Path(__file__).parents[1] / "data" / "rustcode-3000-3400.json.gz"


def replay(*arguments: str) -> dict[str, Any]:
    """The summary that `midfill replay` prints."""
    # The layouts are compared on the tokens of the text as it stands.
    settings = ["--model", "tiny", "--healing", "off"]
    finished = CliRunner().invoke(app, ["replay", str(TRACE), *settings, "--json", "-", *arguments])
    assert finished.exit_code == 0, finished.stderr
    summary: dict[str, Any] = json.loads(finished.stdout)
    return summary


def test_a_session_over_stdio_loses_no_edit_and_suggests_what_a_cold_engine_would() -> None:
    summary = replay("--strategies", "efim", "--moves", "--limit", "60", "--max-new-tokens", "8", "--verify", "6")
    assert (summary["trace"], summary["mode"], summary["requests"]) == ("rustcode-3000-3400", "stdio", 60)
    efim = summary["strategies"]["efim"]
    assert efim["errors"] == 0  # an error is also a text that is not the trace's, or not the cold engine's
    assert efim["hit_share"] >= 0.95
    assert efim["recomputed_tokens"]["p50"] <= 2


def test_the_engine_alone_recomputes_what_the_whole_stack_does() -> None:
    arguments = ("--strategies", "efim", "--limit", "30", "--moves", "--max-new-tokens", "1")
    engine, dry = (replay(mode, *arguments)["strategies"]["efim"] for mode in ("--engine", "--dry"))
    assert engine["errors"] == dry["errors"] == 0
    assert engine["recomputed_tokens"]["p50"] == dry["recomputed_tokens"]["p50"]
    assert engine["hit_share"] == dry["hit_share"]


def test_without_a_model_the_strategies_compare_as_the_design_says() -> None:
    strategies = replay("--dry", "--moves", "--limit", "250")["strategies"]
    mean = {name: strategy["recomputed_tokens"]["mean"] for name, strategy in strategies.items()}
    assert set(mean) == {"none", "psm", "spm", "efim"}
    assert mean["efim"] <= mean["spm"] / 3
    assert mean["efim"] <= mean["psm"] / 10
    assert mean["none"] == strategies["none"]["prompt_tokens_mean"]
    efim = strategies["efim"]
    assert efim["hit_share"] >= 0.96
    assert efim["hit_share_single_cursor"] >= 0.985
    assert efim["recomputed_tokens"]["p95"] <= 8
    assert efim["savings"] is None
