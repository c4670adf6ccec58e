"""An editor, `midfill lsp` over stdio, and the core that it starts, with a real model."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from pathlib import Path

from tests.e2e.conftest import READY_SECONDS, OpenEditor, core_pids, open_ready, ready
from tests.lsp_server.editor import until

SOURCE = Path(__file__).parents[2] / "protocol" / "wire.py"
TEXT = SOURCE.read_text(encoding="utf-8")
LINE = TEXT[: TEXT.index("def encode")].count("\n")

# Typing changes how the token before the cursor is split; token healing computes the partial word again.
SLACK = 3
HEALED_TOKENS = 4


async def test_typing_is_followed_suggested_and_hits_the_cache(open_editor: OpenEditor) -> None:
    async with open_editor() as editor:
        await open_ready(editor, TEXT)
        editor.change(2, (LINE, 0), (LINE, 0), "\n")
        editor.move_cursor(LINE, 0)
        version, suggestions, outcomes = itertools.count(3), [], []
        typed = "def names(values):"
        for column, character in enumerate(typed):
            editor.change(next(version), (LINE, column), (LINE, column), character)
            suggestions.append(await editor.suggested_text(LINE, column + 1))
            if column:
                usage = await editor.last_usage()
                assert usage.usage.recomputed_tokens <= 1 + SLACK + HEALED_TOKENS
                outcomes.append(usage.cacheOutcome)
        assert "miss" not in outcomes
        assert outcomes.count("hit") > 2 / 3 * len(outcomes)
        lines = TEXT.split("\n")
        expected = "\n".join([*lines[:LINE], typed, *lines[LINE:]])
        assert (await editor.document_hash()).sha256 == hashlib.sha256(expected.encode()).hexdigest()
        assert sum(map(bool, suggestions)) > len(typed) // 3  # few characters are shown only if they are likely


async def test_windows_share_one_core(open_editor: OpenEditor, runtime: Path) -> None:
    async with open_editor() as one, open_editor() as other:
        one.open("import os\n")
        other.open("import sys\n")
        await asyncio.gather(ready(one), ready(other))
        await asyncio.gather(one.suggest(1, 0), other.suggest(1, 0))
        assert (await one.last_usage()).source == (await other.last_usage()).source == "core"
        assert len(core_pids(runtime)) == 1


async def test_a_folder_that_is_no_model_is_reported_in_words(open_editor: OpenEditor, tmp_path: Path) -> None:
    async with open_editor({"model": str(tmp_path)}) as editor:
        editor.open("x")
        await until(lambda: editor.messages, READY_SECONDS)
        assert "is not a model folder" in editor.messages[0]
        assert await editor.suggest(0, 1) == []
        assert (await editor.document_hash()).length == 1
