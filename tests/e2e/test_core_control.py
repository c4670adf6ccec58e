"""The core fails, hangs or is restarted while an editor uses it: the editor's session goes on with another one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lsprotocol import types

from tests.e2e.conftest import READY_SECONDS, OpenEditor, core_pids, open_ready, ready
from tests.lsp_server.editor import Editor, until

TEXT = "def add(a, b):\n    return a + b\n\n\n"


async def another_core(editor: Editor, runtime: Path, former: int) -> int:
    """The process of the core that has taken the former one's place, when it answers."""
    await until(lambda: core_pids(runtime) not in ([], [former]), READY_SECONDS)
    editor.change(2, (3, 0), (3, 0), "d")
    await ready(editor)
    (pid,) = core_pids(runtime)
    return pid


def configure(editor: Editor, settings: dict[str, Any]) -> None:
    editor.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=settings))


def resident(core: dict[str, Any]) -> dict[str, int]:
    """Tokens by tier."""
    return {tier["name"]: tier["tokens"] for tier in core["memory"]["tiers"]}


async def test_what_is_resident_is_freed_in_memory_and_on_disk(open_editor: OpenEditor, runtime: Path) -> None:
    async with open_editor() as editor:
        await open_ready(editor, TEXT)
        await until(lambda: any(usage.isPrefetch for usage in editor.usages))  # nothing is computed after this
        (before,) = await editor.execute("midfill.listCores")
        assert before["memory"]["weights_bytes"] > 10_000_000
        assert "weights " in before["summary"]
        assert "resident tokens; the process had " in await editor.execute("midfill.freeMemory", False)
        (freed,) = await editor.execute("midfill.listCores")
        assert resident(freed)["device"] == 0
        assert resident(freed)["disk"] > 0
        assert freed["memory"]["workspaces"] == 1
        await editor.execute("midfill.freeMemory", True)
        (emptied,) = await editor.execute("midfill.listCores")
        assert resident(emptied) == {"device": 0, "disk": 0}
        assert emptied["state"] == "ready"


async def stop_for(editors: tuple[Editor, ...], runtime: Path) -> None:
    """Stop the core by one editor's command; all of them know."""
    await editors[0].execute("midfill.stopCore")
    assert core_pids(runtime) == []
    for editor in editors:
        await editor.until_state("stopped")
        assert "stopped the core: request a suggestion by hand" in editor.statuses[-1].message


async def test_a_stopped_core_stays_stopped_until_a_suggestion_is_requested_by_hand(
    open_editor: OpenEditor, runtime: Path
) -> None:
    async with open_editor() as one, open_editor() as other:
        await open_ready(one, TEXT)
        await stop_for((one, other), runtime)
        (listed,) = await other.execute("midfill.listCores")
        assert listed["state"] == "stopped"
        other.open(TEXT)
        waiting = asyncio.ensure_future(other.suggest(3, 0))
        await asyncio.sleep(1)
        assert core_pids(runtime) == []
        waiting.cancel()
        await other.suggest(3, 0, kind=types.InlineCompletionTriggerKind.Invoked)
        for editor in (one, other):
            await editor.until_state("ready")
        assert len(core_pids(runtime)) == 1


async def test_a_core_that_another_editor_uses_stays_until_that_one_leaves(open_editor: OpenEditor, runtime: Path) -> None:
    async with open_editor() as other:
        async with open_editor() as editor:
            await open_ready(editor, TEXT)
            (shared,) = core_pids(runtime)
            configure(other, {"storeMb": 200})
            differs = "storeMb = 0 (requested: 200); 1 other client uses it"
            await until(lambda: differs in other.statuses[-1].message, READY_SECONDS)
            assert core_pids(runtime) == [shared]
        other.open(TEXT)
        await another_core(other, runtime, shared)
        assert other.statuses[-1].message == ""
