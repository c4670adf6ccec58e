"""The progress that clients show while the model loads, and while the prompt of a document is prefilled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from lsprotocol import types

from protocol.messages import CompletionRequest, CoreStatus
from tests.lsp_server.editor import URI, Editor, editor_on, until
from tests.lsp_server.fake_core import READY, FakeCore


def kinds(editor: Editor) -> list[str]:
    return [value["kind"] for value in editor.progress]


def last(editor: Editor) -> tuple[Any, Any]:
    return editor.progress[-1].get("message"), editor.progress[-1].get("percentage")


@asynccontextmanager
async def reading(
    core: FakeCore, *, progress: bool = True
) -> AsyncIterator[tuple[Editor, asyncio.Task[str], asyncio.Event]]:
    """An editor, its request for a suggestion, and the event that ends the reading of the prompt."""
    read = core.hold("x")
    async with editor_on(core, progress=progress) as editor:
        editor.open("a")
        asked = asyncio.create_task(editor.suggested_text(0, 1))
        await until(lambda: core.asked)
        await core.tell_prefill(512, 1280)
        yield editor, asked, read
        read.set()
        await asked


async def test_a_long_prefill_is_shown_with_the_file_and_ends_with_the_answer(core: FakeCore) -> None:
    async with reading(core) as (editor, asked, read):
        await until(lambda: kinds(editor)[-1:] == ["report"])
        assert last(editor) == ("reading a.py", 40)
        await core.tell_prefill(1024, 1280)
        await until(lambda: last(editor) == ("reading a.py", 80))
        read.set()
        assert await asked == "x"
        await until(lambda: kinds(editor)[-1] == "end")
        assert kinds(editor).count("begin") == 1


async def test_a_newer_request_continues_the_progress(core: FakeCore) -> None:
    async with reading(core) as (editor, overtaken, read):
        await until(lambda: kinds(editor)[-1:] == ["report"])
        editor.change(2, (0, 1), (0, 1), "b")
        assert await overtaken == ""
        asked = asyncio.create_task(editor.suggested_text(0, 2))
        await until(lambda: len(core.asked) == 2)
        await core.tell_prefill(1024, 1280)
        await until(lambda: last(editor) == ("reading a.py", 80))
        read.set()
        assert await asked == "x"
        await until(lambda: kinds(editor)[-1] == "end")
        assert kinds(editor).count("begin") == 1


async def test_the_progress_ends_when_the_core_says_nothing_more(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsp_server.notices._SILENCE_S", 0.1)
    async with reading(core) as (editor, _, _):
        await until(lambda: kinds(editor)[-1:] == ["end"])


async def test_without_the_capability_nothing_is_sent(core: FakeCore) -> None:
    async with reading(core, progress=False) as (editor, asked, read):
        await core.tell_prefill(5, 0)  # makes no sense, and is ignored
        read.set()
        assert await asked == "x"
    assert editor.progress == []


async def test_what_was_asked_for_arrives_when_the_model_is_loaded(core: FakeCore) -> None:
    loaded = asyncio.Event()

    async def answer(request: CompletionRequest) -> str:
        await loaded.wait()
        return request.prompt.increment

    core.answer, core.status = answer, CoreStatus("unloaded", "fake")
    async with editor_on(core, state="unloaded", progress=True) as editor:
        editor.open("a")
        overtaken = asyncio.create_task(editor.suggested_text(0, 1))
        await until(lambda: core.asked)
        await core.set_status(CoreStatus("loading", "fake", detail="reading weights", progress=0.25))
        await until(lambda: editor.progress)
        assert (editor.progress[0]["kind"], editor.progress[0]["percentage"]) == ("begin", 25)
        editor.change(2, (0, 1), (0, 1), "b")
        assert await overtaken == ""
        asked = asyncio.create_task(editor.suggested_text(0, 2))
        await until(lambda: len(core.asked) == 2)
        await core.set_status(READY)
        loaded.set()
        assert await asked == "ab"
        await until(lambda: editor.progress[-1]["kind"] == "end")


async def test_a_popup_does_not_wait_for_the_model_but_it_is_set_to_work(core: FakeCore) -> None:
    core.status = CoreStatus("unloaded", "fake")
    async with editor_on(core, state="unloaded", inline=False) as editor:
        editor.open("a")
        params = types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(0, 1))
        result = await editor.text_document_completion_async(params)
        assert isinstance(result, types.CompletionList)
        assert not result.items
        await until(lambda: core.requests)
        assert core.asked == []
