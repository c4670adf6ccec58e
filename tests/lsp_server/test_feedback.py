"""What clients tell of the suggestions that they show, by LSP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from lsprotocol import types

from lsp_server.custom_messages import ACCEPTED_COMMAND, DID_ACCEPT_PARTLY, DID_CHANGE_STATUS, DID_SHOW
from lsp_server.usage.database import read_statistics, statistics_file
from lsp_server.usage.statistics import Statistics, total
from protocol.messages import CoreStatus
from tests.lsp_server.editor import Editor, connected_editor, until
from tests.lsp_server.fake_core import FakeCore


@pytest.fixture(autouse=True)
def _own_statistics() -> None:
    statistics_file().unlink(missing_ok=True)


async def accept(editor: Editor, item: types.InlineCompletionItem) -> None:
    assert item.command is not None
    params = types.ExecuteCommandParams(command=item.command.command, arguments=item.command.arguments)
    await editor.workspace_execute_command_async(params)


def always(text: str) -> Callable[[object], Awaitable[str]]:
    async def answer(_: object) -> str:
        return text

    return answer


async def test_after_an_acceptance_the_next_suggestion_is_computed_before_anybody_asks(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token})
        await editor.until_state("ready")
        editor.open("\n")
        (item,) = await editor.suggest(0, 0)
        editor.change(2, (0, 0), (0, 0), "x = 1")
        await accept(editor, item)
        await until(lambda: len(core.asked) == 2)
        assert core.asked[-1].prompt.increment == "x = 1"
        assert await editor.suggest(0, 5)
        assert len(core.asked) == 2
    statistics = total(read_statistics(statistics_file()).values())
    assert (statistics.shown, statistics.accepted, statistics.accepted_characters) == (2, 1, 5)


async def test_copilots_notifications(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token})
        await editor.until_state("ready")
        core.answer = always("'😋' + 'a'")
        editor.open("x = \n")
        (item,) = await editor.suggest(0, 4)
        shown = editor.protocol._converter.unstructure(item)
        editor.protocol.notify(DID_SHOW, {"item": shown})
        editor.protocol.notify(DID_ACCEPT_PARTLY, {"item": shown, "acceptedLength": 3})
        await editor.document_hash()
    statistics = total(read_statistics(statistics_file()).values())
    assert (statistics.shown, statistics.accepted_partly, statistics.accepted_characters) == (1, 1, 2)


async def test_words_of_a_client_that_reports_nothing(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token})
        await editor.until_state("ready")
        core.answer = always("'😋'.join(names)")
        editor.open("x = \n")
        await editor.suggest(0, 4)
        editor.change(2, (0, 4), (0, 4), "'😋'.join")  # 10 units of UTF-16
        (item,) = await editor.suggest(0, 14)
        assert item.insert_text == "(names)"
        editor.change(3, (0, 14), (0, 14), "(")
        (item,) = await editor.suggest(0, 15)
        editor.change(4, (0, 15), (0, 15), "names)")
        await accept(editor, item)
    statistics = total(read_statistics(statistics_file()).values())
    assert (statistics.accepted, statistics.accepted_partly) == (0, 1)
    assert (statistics.accepted_characters, statistics.typed_characters, statistics.kept_10min) == (14, 1, 14)
    assert {group.model for group in read_statistics(statistics_file())} == {"fake"}
    assert statistics.hot + statistics.warm + statistics.cold == 1  # the others were typed on


async def test_nothing_is_counted_where_that_is_off(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token, "statistics": False})
        await editor.until_state("ready")
        editor.open("\n")
        (item,) = await editor.suggest(0, 0)
        await accept(editor, item)
    assert total(read_statistics(statistics_file()).values()) == Statistics()


async def test_the_command_is_announced(editor: Editor) -> None:
    assert editor.server is not None
    provider = editor.server.capabilities.execute_command_provider
    assert provider is not None
    assert ACCEPTED_COMMAND in provider.commands


async def test_status_for_clients_that_ask_for_it(core: FakeCore) -> None:
    async with connected_editor() as editor:
        heard: list[tuple[bool, str, str]] = []
        editor.feature(DID_CHANGE_STATUS)(lambda params: heard.append((params.busy, params.message, params.kind)))
        await editor.start({"core": core.url, "coreToken": core.token}, status=True)
        await until(lambda: heard and heard[-1] == (False, "", "Normal"))
        await core.set_status(CoreStatus("loading", "fake", detail="reading"))
        await until(lambda: heard[-1] == (True, "reading", "Normal"))
        await core.set_status(CoreStatus("failed", "fake", detail="no markers"))
        await until(lambda: heard[-1] == (False, "no markers", "Error"))
