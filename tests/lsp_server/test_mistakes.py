"""Mistakes of the client: one line of the log with the value at fault, and the session goes on; bugs show where."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from lsp_server.custom_messages import DID_ACCEPT_PARTLY, DID_FOCUS, DID_MOVE_CURSOR, DID_SHOW, DOCUMENT_HASH
from lsp_server.suggesting.open_documents import OpenDocuments
from tests.lsp_server.editor import URI, Editor, until

NOT_OPEN = {"textDocument": {"uri": "file:///other.py"}}
NEGATIVE = {"textDocument": {"uri": URI}, "position": {"line": -1, "character": 0}}
ITEM = {"insertText": "x", "command": {"title": "", "command": "midfill.accepted", "arguments": ["x", 0]}}


@pytest.fixture(autouse=True)
def _log_as_a_process_does() -> Iterator[None]:
    logger = logging.getLogger("pygls")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def message(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode()


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (message(method=types.TEXT_DOCUMENT_DID_OPEN, params={"x": 1}), '{"x": 1}'),
        (message(method=types.TEXT_DOCUMENT_DID_OPEN), "params"),
        (message(method=DID_MOVE_CURSOR, params=NEGATIVE), '"line": -1'),
        (message(method=DID_MOVE_CURSOR, params=NOT_OPEN | {"position": {"line": "a", "character": 0}}), '"a"'),
        (message(method=DID_FOCUS, params=NOT_OPEN), "file:///other.py is not open"),
        (message(method=DID_SHOW, params={"item": 3}), '{"item": 3}'),
        (message(method=DID_SHOW, params={"item": ITEM}), "('x', 0)"),
        (message(method=DID_ACCEPT_PARTLY, params={"item": ITEM, "acceptedLength": "z"}), "acceptedLength"),
        (message(id="a", method=DOCUMENT_HASH, params=NOT_OPEN), "file:///other.py is not open"),
        (message(id="a", method="no/such"), "no/such"),
        (message(id="a", method=types.WORKSPACE_EXECUTE_COMMAND, params={"command": "nope"}), "nope"),
        (message(id="a", method=types.WORKSPACE_EXECUTE_COMMAND, params={"command": "midfill.snooze"}), "Expected 1 arguments"),
        (message(id="a", method=5), "the method 5"),
        (message(id="a", method="midfill/refused", params={"code": 1}), "midfill/refused"),
        (message(method=types.WINDOW_WORK_DONE_PROGRESS_CANCEL, params={"token": [1]}), "[1]"),
        (b"", "not JSON"),
        (message(id={}, method=DOCUMENT_HASH, params=NOT_OPEN), "id"),
        (message(id="a"), "an answer"),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "midfill/documentHash", "params": {}}', "id"),
        (b"{nonsense", "{nonsense"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "recursion"),
        (b"[1, 2]", "[1, 2]"),
        (b'"' + b"x" * 1_000_000 + b'"', "..."),
        (b"null", "null"),
    ],
    ids=lambda value: value[-40:] if isinstance(value, bytes) else None,
)
async def test_a_mistake_is_one_line(editor: Editor, caplog: pytest.LogCaptureFixture, body: bytes, shown: str) -> None:
    editor.open("a")
    editor.send(body)
    assert (await editor.document_hash()).length == 1
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.exc_info is None
    assert shown in record.getMessage()
    assert len(record.getMessage()) < 600
    assert "\n" not in record.getMessage()


async def test_what_is_wrong_with_a_request_is_its_answer(editor: Editor) -> None:
    with pytest.raises(JsonRpcInvalidParams, match=r"required field missing @ \$\.params\.position.*\"uri\""):
        await editor.ask_in_json(types.TEXT_DOCUMENT_INLINE_COMPLETION, NOT_OPEN)


@pytest.mark.parametrize("answer", [[], {}, [None, None]])
async def test_an_answer_that_is_no_setting_is_one_line(
    editor: Editor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setitem(editor.protocol.fm.features, types.WORKSPACE_CONFIGURATION, lambda _: answer)
    editor.configure(None)
    await until(lambda: caplog.records)
    (record,) = caplog.records
    assert record.exc_info is None
    assert "workspace/configuration: expected a list of one item" in record.getMessage()


async def test_a_folder_that_no_disk_can_have_is_no_bug(editor: Editor, caplog: pytest.LogCaptureFixture) -> None:
    event = {"added": [{"uri": "file:///\ud800", "name": "half a pair"}], "removed": []}
    editor.send(message(method=types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, params={"event": event}))
    editor.open("a")
    assert (await editor.document_hash()).length == 1
    assert caplog.records == []


async def test_a_bug_keeps_its_traceback(
    editor: Editor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(OpenDocuments, "__getitem__", broken)
    editor.send(message(method=DID_FOCUS, params=NOT_OPEN))
    await until(lambda: caplog.records)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info[0] is ZeroDivisionError
    monkeypatch.undo()
