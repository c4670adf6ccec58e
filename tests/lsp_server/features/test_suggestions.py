"""Requests for suggestions as an editor sends them, and its feedback on the answers."""

from __future__ import annotations

import asyncio

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled

from lsp_server.custom_messages import ACCEPTED_COMMAND, DID_ACCEPT_PARTLY, DID_CHANGE_STATUS, DID_SHOW
from lsp_server.documents.documents import Document, Position
from lsp_server.documents.positions import PositionCodec, PositionEncoding
from lsp_server.features.suggestions import accepted_command, inline_item, popup_item
from lsp_server.filters.cursor_context import Insertion
from lsp_server.usage.statistics import Statistics, read_statistics, statistics_file, total
from protocol.messages import CompletionRequest, CoreStatus
from tests.lsp_server.editor import URI, Editor, connected_editor, editor_on, inline_params, until
from tests.lsp_server.fake_core import FakeCore, never, says


@pytest.fixture(autouse=True)
def _own_statistics() -> None:
    statistics_file().unlink(missing_ok=True)


async def accept(editor: Editor, item: types.InlineCompletionItem) -> None:
    await editor.execute(item.command.command, *(item.command.arguments or ()))


async def test_after_an_acceptance_the_next_suggestion_is_computed_before_anybody_asks(core: FakeCore) -> None:
    async with editor_on(core) as editor:
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
    async with editor_on(core) as editor:
        core.answer = says("'😋' + 'a'")
        editor.open("x = \n")
        (item,) = await editor.suggest(0, 4)
        shown = {"command": editor.protocol._converter.unstructure(item)["command"]}  # all that copilot.el sends
        editor.protocol.notify(DID_SHOW, {"item": shown})
        editor.protocol.notify(DID_ACCEPT_PARTLY, {"item": shown, "acceptedLength": 3})
        await editor.document_hash()
    statistics = total(read_statistics(statistics_file()).values())
    assert (statistics.shown, statistics.accepted_partly, statistics.accepted_characters) == (1, 1, 2)


async def test_words_of_a_client_that_reports_nothing(core: FakeCore) -> None:
    async with editor_on(core) as editor:
        core.answer = says("'😋'.join(names)")
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
    assert statistics.hits + statistics.partial_hits + statistics.misses == 1  # the others were typed on


async def test_nothing_is_counted_where_that_is_off(core: FakeCore) -> None:
    async with editor_on(core, settings={"statistics": False}) as editor:
        editor.open("\n")
        (item,) = await editor.suggest(0, 0)
        await accept(editor, item)
    assert total(read_statistics(statistics_file()).values()) == Statistics()


async def test_the_command_is_announced(editor: Editor) -> None:
    assert ACCEPTED_COMMAND in editor.server.capabilities.execute_command_provider.commands


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


async def test_latest_request_wins_and_the_older_is_answered_at_once(editor: Editor, core: FakeCore) -> None:
    editor.open("ab")
    release = asyncio.Event()

    async def wait_on_first(request: CompletionRequest) -> str:
        if request.prompt.increment == "a":
            await release.wait()
        return request.prompt.increment

    core.answer = wait_on_first
    first = asyncio.create_task(editor.suggested_text(0, 1))
    await until(lambda: core.asked)
    assert await editor.suggested_text(0, 2) == "ab"
    assert await first == ""
    await until(lambda: core.cancelled)
    release.set()


async def test_cancelled_requests_end_in_the_core(editor: Editor, core: FakeCore) -> None:
    core.answer = never
    editor.open("a")
    request = editor.protocol.send_request(types.TEXT_DOCUMENT_INLINE_COMPLETION, inline_params(0, 1), msg_id="r1")
    await until(lambda: core.asked)
    editor.protocol.notify(types.CANCEL_REQUEST, types.CancelParams("r1"))
    with pytest.raises(JsonRpcRequestCancelled):
        await asyncio.wrap_future(request)
    await until(lambda: core.cancelled)


async def test_popup_for_clients_without_inline_completion(core: FakeCore) -> None:
    async with editor_on(core, inline=False) as editor:
        assert editor.server.capabilities.completion_provider is not None
        editor.open("😋 fo")
        identifier = types.TextDocumentIdentifier(URI)
        result = await editor.text_document_completion_async(types.CompletionParams(identifier, types.Position(0, 5)))
        assert isinstance(result, types.CompletionList)
        assert result.is_incomplete
        (item,) = result.items
        assert item.filter_text == "fox = 1"
        assert item.text_edit == types.TextEdit(types.Range(types.Position(0, 3), types.Position(0, 5)), "fox = 1")


async def test_no_popup_for_clients_with_inline_completion(editor: Editor) -> None:
    assert editor.server.capabilities.completion_provider is None
    assert editor.server.capabilities.inline_completion_provider is not None


ACCEPTED = accepted_command(7, 0)
CODEC = PositionCodec(PositionEncoding.UTF16)


def span(start: int, end: int) -> types.Range:
    return types.Range(types.Position(0, start), types.Position(0, end))


def test_inline_items_replace_what_they_say_again() -> None:
    document = Document.from_text("file:///a", "python", 1, '"😋" f()')
    item = inline_item(CODEC, document, Position(0, 6), Insertion("a):", replaced=1), ACCEPTED)
    assert (item.insert_text, item.range) == ("a):", span(7, 8))
    assert item.command == ACCEPTED


def test_inline_items_take_the_place_of_the_selected_entry() -> None:
    document = Document.from_text("file:///a", "python", 1, '"😋" x.ap)')
    item = inline_item(CODEC, document, Position(0, 8), Insertion("append(1)", replaced=1, taken=2), ACCEPTED)
    assert (item.insert_text, item.range) == ("append(1)", span(7, 10))


def test_popup_items_begin_with_the_word_that_is_being_typed() -> None:
    document = Document.from_text("file:///a", "python", 1, "x.über()")
    item = popup_item(CODEC, document, Position(0, 6), Insertion("tragung(1)\n    y", replaced=2), ACCEPTED)
    assert item.text_edit == types.TextEdit(span(2, 8), "übertragung(1)\n    y")
    assert item.filter_text == "übertragung(1)\n    y"
    assert item.label == "übertragung(1) …"


def test_popup_items_that_begin_with_a_new_line_show_the_next() -> None:
    document = Document.from_text("file:///a", "python", 1, "if x:")
    assert popup_item(CODEC, document, Position(0, 5), Insertion("\n    pass"), ACCEPTED).label == "pass"
