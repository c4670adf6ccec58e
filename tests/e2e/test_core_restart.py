"""The core killed in the middle of a request: the editor's session goes on, and no edit is lost."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import psutil

from tests.e2e.conftest import OpenEditor, core_pids, open_ready, ready
from tests.lsp_server.editor import Editor, until


async def test_a_killed_core_is_started_again_and_no_edit_lost(open_editor: OpenEditor, runtime: Path) -> None:
    text = "def add(a, b):\n    return a + b\n\n\n"
    async with open_editor() as editor:
        await open_ready(editor, text)
        (first,) = core_pids(runtime)
        psutil.Process(first).suspend()  # so that it answers nothing before it is killed, however fast it is
        pending = asyncio.create_task(editor.suggest(3, 0))
        await asyncio.sleep(0.02)
        psutil.Process(first).kill()
        assert await pending == []
        await until(lambda: editor.statuses[-1].state != "ready")
        asked = []
        for column, character in enumerate("def su"):  # the user goes on typing
            editor.change(column + 2, (3, column), (3, column), character)
            asked.append(asyncio.create_task(editor.suggest(3, column + 1)))
        answers = [await request for request in asked]
        assert answers[:-1] == [[]] * 5
        assert (await editor.last_usage()).version == 7  # computed by the next core, without another key
        await ready(editor)
        editor.change(8, (3, 6), (3, 6), "b")
        await editor.suggest(3, 7)
        usage = await editor.last_usage()
        assert (usage.source, usage.version) == ("core", 8)
        assert (await editor.document_hash()).sha256 == hashlib.sha256(f"{text[:-1]}def sub\n".encode()).hexdigest()
        (second,) = core_pids(runtime)
        assert second != first
        assert editor.messages == []


async def prompt_tokens_of_this_file(editor: Editor) -> int:
    await open_ready(editor, Path(__file__).read_text(encoding="utf-8"))
    await until(lambda: any(usage.isPrefetch for usage in editor.usages))
    await editor.suggest(12, 0)
    tokens: int = (await editor.last_usage()).usage.prompt_tokens
    return tokens


async def test_what_was_resident_is_warm_from_disk_after_a_restart(open_editor: OpenEditor, runtime: Path) -> None:
    async with open_editor() as editor:
        prompt_tokens = await prompt_tokens_of_this_file(editor)
    (pid,) = core_pids(runtime)
    core = psutil.Process(pid)
    core.terminate()  # it saves what is resident
    core.wait(100)
    async with open_editor() as editor:
        assert await prompt_tokens_of_this_file(editor) == prompt_tokens > 500
        recomputed = sum(usage.usage.recomputed_tokens for usage in editor.usages)
        assert recomputed < prompt_tokens / 10
