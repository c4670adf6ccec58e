"""The playground's server: who may use it, its session on a core without a model, and hostile messages."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from inference.core.connections import Connections
from inference.core.pages import PageKeys
from inference.core.process import bind, serve_app
from midfill.play.session import make_app
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
            f"ws://{own}/playground/session",
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
        running_core(runtime, "one") as one,
        running_core(runtime, "two") as two,
    ):
        patch.setenv("MIDFILL_RUNTIME_DIR", str(runtime))
        port = listener.getsockname()[1]
        app = make_app(Settings(model="one"), port, keys, connections)
        thread = threading.Thread(target=asyncio.run, args=(serve_app(app, connections, [listener], over.is_set),))
        thread.start()
        yield Play(port, keys)
        over.set()
        thread.join()
        assert [core.poll() for core in (one, two)] == [None, None]  # they outlive the playground


class Page:
    """Sends and receives as the page does."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def send(self, kind: str, **fields: Any) -> None:
        self._socket.send(json.dumps({"type": kind, **fields}))

    def send_text(self, text: str) -> None:
        self._socket.send(text)

    def hear(self, kind: str, **wanted: Any) -> dict[str, Any]:
        """The next message of this kind with these fields."""
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv(timeout=60))
            if message["type"] == kind and wanted.items() <= message.items():
                return message


@pytest.fixture
def page(play: Play) -> Iterator[Page]:
    with play.open(play.keys.key) as socket:
        page = Page(socket)
        page.hear("Status", state="ready", model="one")
        yield page


def place(line: int, character: int) -> dict[str, int]:
    return {"line": line, "character": character}


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
    assert play.get("/metrics").status_code == 401
    assert play.get("/playground", host="evil.example").status_code == 421


def test_suggestions_follow_the_edits_in_utf_16(page: Page) -> None:
    page.send("Open", name="a.py", language="python", text="# \N{DUCK} \ny = f()\n")
    page.send("Suggest", id=1, name="a.py", place=place(1, 4))
    assert page.hear("Suggestions", id=1)["items"][0][0]
    change = {"start": place(0, 4), "end": place(0, 5), "text": "!\nx = "}
    page.send("Edit", name="a.py", version=1, changes=[change])
    page.send("Suggest", id=2, name="a.py", place=place(1, 4))
    assert page.hear("Cost", source="core")["usage"]["recomputed_tokens"] == 1
    assert page.hear("Suggestions", id=2)["items"] == [["x = 1", 0]]
    page.send("Edit", name="a.py", version=2, changes=[{"start": place(1, 4), "end": place(1, 4), "text": "x"}])
    page.send("Suggest", id=3, name="a.py", place=place(1, 5))
    page.hear("Cost", source="typed")
    assert page.hear("Suggestions", id=3)["items"] == [[" = 1", 0]]


def test_another_model_is_another_core(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    async def models(_: Settings) -> list[dict[str, Any]]:
        fields = {"source": "test", "family": "", "sizeBytes": 2_000_000, "quantization": "", "problem": "", "runsWith": ""}
        fields |= {"here": True, "problem": "", "runsWith": ""}
        return [{**fields, "name": "two"}, {**fields, "name": "three", "problem": "too large"}]

    monkeypatch.setattr("midfill.play.session.models_of_this_machine", models)
    page.send("ListModels")
    assert page.hear("Models")["models"] == [
        {"name": "two", "summary": "test, 2 MB", "running": True},
        {"name": "three", "summary": "test, 2 MB", "problem": "too large"},
    ]
    page.send("UseModel", model="two")
    page.hear("Status", state="ready", model="two")
    page.send("Open", name="a.py", language="python", text="y = \n")
    page.send("Suggest", id=1, name="a.py", place=place(0, 4))
    assert page.hear("Suggestions", id=1)["items"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not a message"),
        ("[" * 100_000, "not a message"),
        ('{"type":"Explode"}', "Explode"),
        ('{"type":"Move","name":"b.py","place":{"line":0,"character":0}}', "b.py"),
        ('{"type":"Move","name":"a.py","place":{"line":-7,"character":0}}', "line -7"),
        ('{"type":"Suggest","id":9,"name":"a.py","place":{"line":-1,"character":0}}', "line -1"),
        ('{"type":"Edit","name":"a.py","version":1,"changes":[{"start":{"line":0}}]}', "character"),
        ('{"type":"Open","name":7,"language":"python","text":""}', "name"),
    ],
)
def test_a_message_that_cannot_be_carried_out_is_answered_and_the_session_goes_on(page: Page, text: str, named: str) -> None:
    page.send("Open", name="a.py", language="python", text="y = \n")
    page.send_text(text)
    assert named in page.hear("Failed")["message"]
    page.send("Suggest", id=1, name="a.py", place=place(0, 4))
    assert page.hear("Suggestions", id=1)["items"]


def test_a_secret_file_gets_no_suggestion_and_the_page_says_why(page: Page) -> None:
    page.send("Open", name=".env", language="plaintext", text="KEY=\n")
    page.send("Suggest", id=1, name=".env", place=place(0, 4))
    assert "secret" in page.hear("Excluded", name=".env")["reason"]
    assert page.hear("Suggestions", id=1)["items"] == []


def test_documents_have_a_limit(page: Page) -> None:
    for number in range(65):
        page.send("Open", name=f"{number}.py", language="python", text="")
    assert "64 documents" in page.hear("Failed")["message"]
