from __future__ import annotations

from pathlib import Path

from bench.memory import measure, open_desk
from lsp_server.prompts.windows import WindowBudget


def test_what_is_there_is_within_the_budgets_and_that_of_tokens(tmp_path: Path) -> None:
    desk = open_desk(documents=6, room_for=2, windows=WindowBudget(400, 200), folder=tmp_path)
    tiers = measure(desk, edits=30)
    desk.engine.close()
    assert [tier.name for tier in tiers] == ["memory", "disk"]
    for tier in tiers:
        assert 0 < tier.most <= tier.budget
        assert 1.0 <= tier.ratio <= 1.1
