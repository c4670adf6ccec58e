"""The playground: who may use it, and its page's language server on a core without a model."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from inference.core.connections import Connections
from inference.core.process import bind, serve_app
from midfill.pages import PageKeys
from midfill.play import make_app
from protocol.settings import Settings
from tests.midfill.test_cores import running_core


@dataclass(frozen=True)
class Play:
    """The server of a playground at a port of this machine."""

    port: int
    keys: PageKeys

    def open(self, key: str, origin: str = "") -> ClientConnection:
        own = f"127.0.0.1:{self.port}"
        return connect(
            f"ws://{own}/playground/lsp",
            subprotocols=[Subprotocol("midfill"), Subprotocol(f"midfill.bearer.{key}")],
            origin=Origin(origin or f"http://{own}"),
            proxy=None,
        )

    def get(self, path: str, bearer: str = "", host: str = "127.0.0.1") -> httpx2.Response:
        headers = {"Host": host} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        return httpx2.get(f"http://127.0.0.1:{self.port}{path}", headers=headers)


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """A playground with the running cores "one" and "two"."""
    runtime = tmp_path_factory.mktemp("runtime")
    runtime.chmod(0o700)
    keys, connections, over = PageKeys(), Connections(8), threading.Event()
    with (
        pytest.MonkeyPatch.context() as patch,
        bind("127.0.0.1", 0) as listener,
        running_core(runtime, "one", "--die-after", "600") as one,
        running_core(runtime, "two", "--die-after", "600") as two,
    ):
        patch.setenv("MIDFILL_RUNTIME_DIR", str(runtime))
        port = listener.getsockname()[1]
        page = make_app(Settings(model="one"), port, keys, connections)
        thread = threading.Thread(target=asyncio.run, args=(serve_app(page, connections, [listener], over.is_set),))
        thread.start()
        yield Play(port, keys)
        over.set()
        thread.join()
        assert [core.poll() for core in (one, two)] == [None, None]  # they outlive the playground


class Page:
    """Speaks LSP as the page does."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def send(self, method: str, params: dict[str, Any], number: int | None = None) -> None:
        numbered = {} if number is None else {"id": number}
        self._socket.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params} | numbered))

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer: its `result` or its `error`."""
        self.send(method, params, 1)
        return self.hear(id=1)

    def hear(self, **wanted: Any) -> dict[str, Any]:
        """The next message with these fields."""
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv(timeout=60))
            if wanted.items() <= message.items():
                return message

    def start(self, model: str) -> None:
        capabilities = {"textDocument": {"inlineCompletion": {}}, "experimental": {"midfill": True}}
        self.ask("initialize", {"processId": None, "capabilities": capabilities, "initializationOptions": {"model": model}})
        self.send("initialized", {})
        while self.hear(method="midfill/status")["params"]["state"] != "ready":
            pass


@pytest.mark.parametrize("model", ["one", "two"])
def test_a_page_s_language_server_suggests_by_the_core_that_the_page_chooses(play: Play, model: str) -> None:
    with play.open(play.keys.key) as socket:
        page = Page(socket)
        page.start(model)
        document = {"uri": "untitled:a.py", "languageId": "python", "version": 0, "text": "# \N{DUCK} \ny = f()\n"}
        page.send("textDocument/didOpen", {"textDocument": document})
        place = {"line": 0, "character": 5}
        change = {"range": {"start": place, "end": place}, "text": "!\nx = "}
        versioned = {"uri": "untitled:a.py", "version": 1}
        page.send("textDocument/didChange", {"textDocument": versioned, "contentChanges": [change]})
        asked = {"textDocument": versioned, "position": {"line": 1, "character": 4}, "context": {"triggerKind": 2}}
        (item,) = page.ask("textDocument/inlineCompletion", asked)["result"]["items"]
        assert item["insertText"] == "x = 1"
        assert page.hear(method="midfill/usage")["params"]["source"] == "core"
        page.send("exit", {})


def test_a_message_that_is_none_is_answered_and_the_server_goes_on(play: Play) -> None:
    with play.open(play.keys.key) as socket:
        page = Page(socket)
        socket.send("[" * 100_000)
        assert "not JSON" in page.hear()["error"]["message"]
        assert "result" in page.ask("initialize", {"processId": None, "capabilities": {}})


def test_a_language_server_ends_with_its_page(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "lsp_server.launch"):
        with play.open(play.keys.key):
            pass
        ends_by = time.monotonic() + 30
        while "the client disconnected" not in caplog.messages:
            assert time.monotonic() < ends_by, caplog.text
            time.sleep(0.01)


def test_a_page_that_does_not_read_is_dropped(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.core.websocket.MAX_UNSENT_CHARS", -1)
    with play.open(play.keys.key) as socket, pytest.raises(ConnectionClosed):
        Page(socket).ask("initialize", {"processId": None, "capabilities": {}})


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (401, {"key": "wrong"}),
        (401, {"key": ""}),
        (403, {"origin": "https://evil.example"}),
        (403, {"origin": "http://127.0.0.1:1"}),
    ],
)
def test_only_the_own_page_with_the_key_gets_a_session(play: Play, status: int, shown: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus) as refused:
        play.open(**{"key": play.keys.key, **shown})
    assert refused.value.response.status_code == status


def test_a_code_is_exchanged_for_the_key(play: Play) -> None:
    code = play.keys.new_code()
    assert play.get("/pages/key", code).json() == {"key": play.keys.key}
    assert play.get("/pages/key", code).status_code == 401
    assert play.get("/playground").status_code in (200, 503)  # 503 where the pages are not built
    assert play.get("/playground", host="evil.example").status_code == 421
