"""Language servers as processes: stdio belongs to LSP, no torch is imported, and leaving loses nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcRequestCancelled

from lsp_server.usage.database import read_statistics, statistics_file
from lsp_server.usage.statistics import total
from tests.lsp_server.editor import Editor, editor_on, inline_params, until
from tests.lsp_server.fake_core import FakeCore, never

LSP = (sys.executable, "-X", "importtime", "-m", "midfill", "lsp")


class StdioEditor(Editor):
    """The editor of a language server in a process of its own."""

    process: asyncio.subprocess.Process
    log: asyncio.Task[bytes]

    async def logged(self) -> list[str]:
        """The lines of the ended server's log, without the times of its imports."""
        lines = (await self.log).decode().splitlines()
        return [line for line in lines if not line.startswith("import time:")]


@asynccontextmanager
async def stdio_editor(core: FakeCore, **environment: str) -> AsyncIterator[StdioEditor]:
    """An editor whose initialized server is told of the core by variables."""
    editor = StdioEditor()
    address = {"MIDFILL_CORE": core.url, "MIDFILL_CORE_TOKEN": core.token}
    await editor.start_io(*LSP, env={**os.environ, **address, **environment})
    editor.process, editor.log = editor._server, asyncio.create_task(editor._server.stderr.read())
    try:
        await editor.start({})
        yield editor
    finally:
        await editor.stop()


async def test_over_stdio_without_a_model_library(core: FakeCore) -> None:
    async with stdio_editor(core) as editor:
        await editor.until_state("ready")
        editor.open("a")
        assert await editor.suggested_text(0, 1) == "x = 1"
        await editor.shutdown_async(None)
        editor.exit(None)
        assert await editor.process.wait() == 0
        imported = {line.rpartition("|")[2].strip() for line in (await editor.log).decode().splitlines()}
        assert "pygls.lsp.server" in imported
        assert not imported & {"torch", "transformers", "tokenizers", "numpy"}


async def test_a_clients_mistake_is_one_line_of_the_log(core: FakeCore) -> None:
    async with stdio_editor(core) as editor:
        with pytest.raises(JsonRpcInvalidParams):
            await editor.ask_in_json(types.TEXT_DOCUMENT_INLINE_COMPLETION, {"position": "nowhere"})
        await editor.shutdown_async(None)
        editor.exit(None)
        (line,) = await editor.logged()
        assert '{"position": "nowhere"}' in line


async def test_a_shutdown_ends_what_is_under_way(core: FakeCore) -> None:
    core.answer = never
    async with stdio_editor(core) as editor:
        await editor.until_state("ready")
        editor.open("a")
        under_way = asyncio.create_task(editor.suggest(0, 1))
        await until(lambda: core.asked)
        await editor.shutdown_async(None)
        with pytest.raises(JsonRpcRequestCancelled):
            await under_way
        editor.exit(None)
        assert await editor.process.wait() == 0


async def test_a_client_that_kills_the_server_once_it_is_shut_down(core: FakeCore, tmp_path: Path) -> None:
    async with stdio_editor(core, XDG_STATE_HOME=str(tmp_path)) as editor:
        await editor.until_state("ready")
        editor.open("a")
        assert await editor.suggest(0, 1)
        await editor.shutdown_async(None)
        editor.process.kill()
        await editor.process.wait()
    (saved,) = tmp_path.rglob("statistics.sqlite")
    assert total(read_statistics(saved).values()).shown == 1


async def test_who_leaves_lets_go_of_the_core(core: FakeCore) -> None:
    """Also where its statistics cannot be saved."""
    statistics_file().parent.mkdir(parents=True, exist_ok=True)
    statistics_file().write_bytes(b"\xff\xfe")
    try:
        async with editor_on(core) as editor:
            editor.open("a")
            assert await editor.suggest(0, 1)
            assert len(core.connections) == 1
        await until(lambda: not core.connections)
    finally:
        statistics_file().unlink()


@pytest.mark.parametrize("shuts_down", [True, False])
async def test_a_client_that_leaves_without_waiting(core: FakeCore, tmp_path: Path, *, shuts_down: bool) -> None:
    """Some clients send `exit` before the answer to `shutdown`, and some die: nothing is lost, and nothing logged."""
    async with stdio_editor(core, XDG_STATE_HOME=str(tmp_path)) as editor:
        await editor.until_state("ready")
        editor.open("a")
        assert await editor.suggest(0, 1)
        if shuts_down:
            answered = asyncio.create_task(editor.shutdown_async(None))
            await asyncio.sleep(0)  # it is sent
            editor.exit(None)
            await answered
        else:
            editor.process.stdin.close()
        assert await editor.process.wait() == (0 if shuts_down else 1)
        assert await editor.logged() == []
        await until(lambda: not core.connections)
    (saved,) = tmp_path.rglob("statistics.sqlite")
    assert total(read_statistics(saved).values()).shown == 1


async def test_leaving_without_a_shutdown_is_an_error_to_lsp(core: FakeCore) -> None:
    async with stdio_editor(core) as editor:
        editor.exit(None)
        assert await editor.process.wait() == 1


async def test_a_bad_variable_is_named_before_anything_starts() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "midfill", "lsp"),
        env={**os.environ, "MIDFILL_MAX_TOKENS": "many"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 2
    assert stdout == b""
    assert "MIDFILL_MAX_TOKENS = 'many': expected whole number" in stderr.decode()


async def test_requests_see_the_document_as_it_was_when_they_were_sent(editor: Editor, core: FakeCore) -> None:
    """Messages that arrive together are handled one after the other, each handler begun."""
    editor.open("a")
    first = editor.protocol.send_request_async(types.TEXT_DOCUMENT_INLINE_COMPLETION, inline_params(0, 1))
    editor.change(2, (0, 0), (0, 1), "")
    assert not (await first).items
