"""One connection to a core: answers, errors, cancellation, and what happens when the core goes away.

Errors of connections in the user's words.

The token goes to a core that has proved that it knows it, and to no other listener.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from lsp_server.core_client import client as client_module
from lsp_server.core_client import client as core_proof
from lsp_server.core_client.client import CoreClient, Endpoint, check_proof, in_words
from protocol.errors import BadInput, BadModel, CoreBlocked, CoreSilent, CoreUnavailable, Unauthorized
from protocol.messages import PROTOCOL_VERSION, CompletionRequest, CoreStatus, Prompt
from protocol.wire import StatusChanged, encode
from tests.lsp_server.editor import PATIENCE_S, until
from tests.lsp_server.fake_core import READY, FakeCore, fails, listening, never, shake_hands

REQUEST = CompletionRequest("s", Prompt("a", "b"), max_tokens=4)


@pytest.fixture
def statuses() -> list[CoreStatus]:
    return []


@pytest.fixture
async def client(core: FakeCore, statuses: list[CoreStatus]) -> AsyncIterator[CoreClient]:
    client = await CoreClient.open(Endpoint(core.url, core.token), statuses.append)
    yield client
    await client.close()


async def test_answers_come_back_to_who_asked(client: CoreClient, core: FakeCore) -> None:
    async def slow_first(request: CompletionRequest) -> str:
        await asyncio.sleep(0.05 if request.session == "slow" else 0)
        return request.session

    core.answer = slow_first
    requests = [CompletionRequest(session, Prompt("", ""), 1) for session in ("slow", "quick")]
    answers = await asyncio.gather(*(client.complete(request) for request in requests))
    assert [answer.text for answer in answers] == ["slow", "quick"]


async def test_hears_the_status_at_once_and_on_every_change(
    client: CoreClient, core: FakeCore, statuses: list[CoreStatus]
) -> None:
    await until(lambda: statuses == [READY])
    loading = CoreStatus("loading", "fake", progress=0.5)
    await core.set_status(loading)
    await until(lambda: statuses == [READY, loading])


async def test_hears_nothing_before_it_is_open() -> None:
    """Who hears that the core is there asks it at once, and has to have the client by then."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer, StatusChanged(READY, PROTOCOL_VERSION))
        await reader.read()
        writer.close()

    happened: list[object] = []
    async with listening(greet) as url:
        client = await CoreClient.open(Endpoint(url, "t"), happened.append)
        happened.append("opened")
        await until(lambda: READY in happened)
        await client.close()
    assert happened == ["opened", READY]


async def test_the_core_s_errors_are_raised_by_their_class(client: CoreClient, core: FakeCore) -> None:
    core.answer = fails(BadModel("no FIM markers"))
    with pytest.raises(BadModel, match="no FIM markers"):
        await client.complete(REQUEST)


async def test_what_is_pending_fails_when_the_core_goes_away(client: CoreClient, core: FakeCore) -> None:
    core.answer = never
    pending = asyncio.create_task(client.complete(REQUEST))
    await until(lambda: core.requests)
    await core.drop_connections()
    with pytest.raises(CoreUnavailable, match="went away"):
        await pending
    await client.wait_closed()
    with pytest.raises(CoreUnavailable, match="is closed"):
        await client.complete(REQUEST)


@pytest.mark.parametrize("url", ["ws://127.0.0.1:9/ws", "http://127.0.0.1:9/", "nonsense"])
async def test_nobody_there(url: str) -> None:
    with pytest.raises(CoreUnavailable):
        await CoreClient.open(Endpoint(url, "t"), lambda _: None)


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (HTTPStatus.NOT_FOUND, {}, "HTTP 404: not a core"),
        (HTTPStatus.OK, {}, "HTTP 200: not a core"),
        (HTTPStatus.FOUND, {"Location": "ws://127.0.0.1:9/ws"}, "no core answers"),
    ],
)
async def test_what_is_no_core(status: HTTPStatus, headers: dict[str, str], message: str) -> None:
    def refuse(connection: ServerConnection, _: Request) -> Response:
        response = connection.respond(status, "something\n")
        response.headers.update(headers)
        return response

    async def handle(_: ServerConnection) -> None:
        raise AssertionError

    async with serve(handle, "127.0.0.1", 0, process_request=refuse) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(CoreUnavailable, match=message):
            await CoreClient.open(Endpoint(f"ws://127.0.0.1:{port}/ws", "t"), lambda _: None)


async def test_nobody_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_OPEN_TIMEOUT_S", 0.1)
    gone = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    async with listening(listen) as url:
        with pytest.raises(CoreUnavailable, match="no core answers"):
            await CoreClient.open(Endpoint(url, "t"), lambda _: None)
        await asyncio.wait_for(gone.wait(), PATIENCE_S)


async def test_core_that_does_not_know_the_token_any_more(client: CoreClient, core: FakeCore) -> None:
    await until(lambda: core.connections)
    for connection in tuple(core.connections):
        await connection.close(CloseCode.POLICY_VIOLATION, "it changed")
    with pytest.raises(Unauthorized, match="it changed"):
        await client.wait_closed()


async def test_messages_in_several_frames(
    client: CoreClient, core: FakeCore, statuses: list[CoreStatus], caplog: pytest.LogCaptureFixture
) -> None:
    await until(lambda: core.connections)
    (connection,) = core.connections
    text = encode(StatusChanged(CoreStatus("ready", "ä€"), PROTOCOL_VERSION)).encode()
    await connection.send([text[:30], text[30:]], text=True)
    for nonsense in ("[]", b"\xff", "x" * 100_000):
        await connection.send(nonsense)
    await connection.send([text[index : index + 1] for index in range(len(text))], text=True)
    await until(lambda: [status.model for status in statuses] == ["fake", "ä€", "ä€"])
    assert caplog.text.count("not a midfill message") == 3


async def test_who_hears_the_status_may_fail(core: FakeCore, caplog: pytest.LogCaptureFixture) -> None:
    """At the first one, and at those that come later: the connection is as good as before."""
    heard: list[str] = []

    def fail(status: CoreStatus) -> None:
        heard.append(status.state)
        raise RuntimeError(f"cannot show {status.state}")

    client = await CoreClient.open(Endpoint(core.url, core.token), fail)
    await until(lambda: heard == ["ready"])
    await core.set_status(CoreStatus("loading", "fake"))
    await until(lambda: heard == ["ready", "loading"])
    assert (await client.complete(REQUEST)).text == "x = 1"
    await client.close()
    assert caplog.text.count("the handler of the core's status") == 2


async def test_ends_though_the_core_does_not_read(deaf_url: str) -> None:
    client = await CoreClient.open(Endpoint(deaf_url, "t"), lambda _: None)
    for _ in range(100):
        client.forget("s" * 100_000)
    await asyncio.wait_for(client.close(), PATIENCE_S)
    await asyncio.wait_for(client.wait_closed(), PATIENCE_S)


async def test_a_core_that_leaves_megabytes_unread_is_left(deaf_url: str) -> None:
    client = await CoreClient.open(Endpoint(deaf_url, "t"), lambda _: None)
    for _ in range(1000):
        client.forget("s" * 100_000)
    with pytest.raises(CoreSilent, match="bytes unread"):
        await asyncio.wait_for(client.wait_closed(), PATIENCE_S)


def test_the_token_is_not_shown() -> None:
    assert "hush" not in repr(Endpoint("ws://x/ws", "hush"))


async def test_a_core_that_hangs_is_left_while_an_answer_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is open, and nothing comes: not even a pong."""
    monkeypatch.setattr(client_module, "_PING_AFTER_S", 0.01)
    monkeypatch.setattr(client_module, "_READY_TIMEOUT_S", 0.1)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer, StatusChanged(READY, PROTOCOL_VERSION))
        while await reader.read(4096):
            pass
        writer.close()

    states: list[CoreStatus] = []
    async with listening(hang) as url:
        client = await CoreClient.open(Endpoint(url, "t"), states.append)
        await until(lambda: states)
        with pytest.raises(CoreSilent, match="does not answer"):
            await asyncio.wait_for(client.complete(REQUEST), PATIENCE_S)
        with pytest.raises(CoreSilent, match="does not answer"):
            await client.wait_closed()
        await client.close()


async def test_a_core_that_only_takes_long_is_not_left(
    client: CoreClient, core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_PING_AFTER_S", 0.01)

    async def slow(_: CompletionRequest) -> str:
        await asyncio.sleep(0.2)
        return "at last"

    core.answer = slow
    assert (await client.complete(REQUEST)).text == "at last"


@pytest.mark.parametrize(
    ("text", "failing"),
    [
        ('{"type": "Completed", "id": 1, "completion": {"text": "", "new_field": 1}}', [1]),
        ('{"type": "Completed", "id": 7, "completion": {}}', []),
        ('{"type": "Failed", "id": null, "code": "bad_input", "message": "unknown field"}', [1, 2]),
        ("nonsense", [1, 2]),
    ],
)
async def test_no_request_waits_for_an_answer_that_cannot_be_read(
    client: CoreClient, core: FakeCore, text: str, failing: list[int]
) -> None:
    release = core.hold("well")
    pending = [asyncio.create_task(client.complete(REQUEST)) for _ in range(2)]
    await until(lambda: len(core.requests) == 2)
    (connection,) = core.connections
    await connection.send(text)
    await until(lambda: sum(task.done() for task in pending) == len(failing))
    release.set()
    answers = await asyncio.gather(*pending, return_exceptions=True)
    assert [number for number, answer in enumerate(answers, 1) if isinstance(answer, BadInput)] == failing


@pytest.mark.parametrize("text", ["", '{"type":"StatusChanged","status":{"new":1},"protocol_version":99}'])
async def test_a_core_of_another_protocol_is_left_and_named(core: FakeCore, text: str) -> None:
    """Also where its status can no longer be read."""
    core.protocol_version = 99 if not text else PROTOCOL_VERSION
    client = await CoreClient.open(Endpoint(core.url, core.token), lambda _: None)
    if text:
        await until(lambda: core.connections)
        (connection,) = core.connections
        await connection.send(text)
    with pytest.raises(CoreBlocked, match=f"speaks version 99 of the protocol, and this midfill version {PROTOCOL_VERSION}"):
        await client.wait_closed()
    await client.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "certificate verify failed"),
        (OSError("Multiple exceptions"), "Multiple exceptions"),
        (ValueError("no URL"), "no URL"),
    ],
)
def test_says_what_went_wrong(error: Exception, words: str) -> None:
    assert words in in_words(error)
    assert "Errno" not in in_words(error)


TOKEN = "a-token-that-is-secret"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[str, bytearray]]:
    """The address of a server that answers every packet with the same bytes, and all that it was sent."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(4096):
            heard.extend(chunk)
            writer.write(answer)
        writer.close()

    async with listening(serve) as url:
        yield url, heard


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfake", Unauthorized),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"f" * 10_000, Unauthorized),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", Unauthorized),
        (b"SSH-2.0-OpenSSH_9.6\r\n", CoreUnavailable),
    ],
)
async def test_a_listener_that_is_no_core_never_gets_the_token(answer: bytes, error: type[Exception]) -> None:
    async with answering(answer) as (url, heard):
        with pytest.raises(error):
            await CoreClient.open(Endpoint(url, TOKEN, own=True), lambda _: None)
    assert b"GET /proof" in heard
    assert TOKEN.encode() not in heard


async def test_the_answer_of_a_core_at_another_port_is_no_proof(core: FakeCore) -> None:
    """A listener that passes the question on to the real core learns nothing that helps it."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = int(core.url.rpartition(":")[2].removesuffix("/ws"))
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        there_writer.write(await reader.read(4096))
        writer.write(await there_reader.read(4096))
        there_writer.close()
        writer.close()

    async with listening(pass_on) as url:
        with pytest.raises(Unauthorized, match="does not know this machine's token"):
            await CoreClient.open(Endpoint(url, core.token, own=True), lambda _: None)
    assert core.authorizations == []


async def test_a_listener_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_proof, "_TIMEOUT_S", 0.1)
    async with answering(b"") as (url, _):
        with pytest.raises(CoreSilent, match="does not answer"):
            await check_proof(url, TOKEN)
