"""The file of users, and the users of a running core, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from inference.core.users import Users, add_token, read_users, revoke_tokens
from inference.loading.options import EngineOptions
from lsp_server.core_client.client import CoreClient, Endpoint
from protocol.errors import BadInput, Unauthorized
from protocol.messages import CompletionRequest, Prompt
from protocol.tokens import proof, token_digest, token_id
from protocol.wire import Complete, Completed, Failed, Forget, Kept, Stop, Unload, encode
from tests.inference.serving import PATIENCE_S, TOKEN, Served, receive, serving, wait_until

pytestmark = pytest.mark.usefixtures("quick_core")

TEXT = "def f(x):\n    total = 0\n" + "    total += x\n" * 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


def test_the_file_keeps_digests_alone(file: Path) -> None:
    tokens = [add_token(file, name) for name in ("ann", "bob", "ann")]
    assert file.stat().st_mode & 0o777 == 0o600
    assert not any(token in file.read_text() for token in tokens)
    assert [(entry.name, entry.id, entry.sha256) for entry in read_users(file)] == [
        (name, token_id(token), token_digest(token)) for name, token in zip(("ann", "bob", "ann"), tokens, strict=True)
    ]
    assert len(revoke_tokens(file, "ann")) == 2
    assert [entry.id for entry in revoke_tokens(file, token_id(tokens[1]) or "")] == [token_id(tokens[1])]
    assert read_users(file) == ()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{}", "mode 660"),
        ('{"tokens": [{"name": "ann"}]}', "missing required field `id`"),
        ('{"tokens": [{"name": "a/b", "id": "1", "sha256": "2", "added": ""}]}', "'a/b' cannot be a user's name"),
        ('{"users": []}', "unknown field"),
        ("nonsense", "is not a file of users"),
    ],
)
def test_a_bad_file_is_refused(file: Path, content: str, error: str) -> None:
    file.write_text(content)
    file.chmod(0o660 if "mode" in error else 0o600)
    with pytest.raises(BadInput, match=error):
        read_users(file)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-", "x" * 65, "ann\n"])
def test_names_that_could_leave_their_sessions_are_refused(file: Path, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be a user's name"):
        add_token(file, name)
    with pytest.raises(BadInput, match="has no user and no token"):
        revoke_tokens(file, "nobody")


def test_a_file_that_becomes_unusable_changes_no_user(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = add_token(file, "ann")
    users = Users(file)
    for spoil in (lambda: file.write_text("nonsense"), file.unlink):
        spoil()
        users.refresh(lambda _: pytest.fail("revoked"))
        assert users.find(token) is not None
    assert len(caplog.records) == 2


@pytest.fixture
def served(tiny_checkpoint: Path, file: Path) -> Iterator[Served]:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1, slots=2)
    with serving(options, users=Users(file)) as served:
        yield served


@pytest.fixture
def joins(file: Path, served: Served) -> Callable[[str], str]:
    """Adds a user to the running core."""

    def join(name: str) -> str:
        token = add_token(file, name)
        wait_until(lambda: status(served, "/health", token) == 200)
        return token

    return join


def ask(served: Served, path: str, token: str, **fields: Any) -> Any:
    body = json.dumps(fields).encode() if fields else None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://{served.address}{path}", body, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer) if answer.headers["content-type"] == "application/json" else answer.read().decode()


def status(served: Served, path: str, token: str, **fields: Any) -> int:
    try:
        ask(served, path, token, **fields)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    return 200


def complete(client: ClientConnection, session: str, text: str = TEXT) -> Completed | Failed:
    client.send(encode(Complete(1, CompletionRequest(session, Prompt(text, "\n"), 2))))
    answer: Completed | Failed = receive(client)
    return answer


def recomputed(client: ClientConnection, session: str, text: str = TEXT) -> int:
    answer = complete(client, session, text)
    assert isinstance(answer, Completed), answer
    return answer.completion.usage.recomputed_tokens


def test_users_come_and_go_without_a_restart(served: Served, file: Path, joins: Callable[[str], str]) -> None:
    ann, other, bob = joins("ann"), joins("ann"), joins("bob")
    changed = ann[:-1] + ("A" if ann[-1] != "A" else "B")
    crossed = ann[: len("midfill_") + 16] + bob[len("midfill_") + 16 :]
    for wrong in ("", "x", changed, crossed, token_digest(ann), token_id(ann), ann.upper(), f"{ann} {bob}"):
        assert status(served, "/props", wrong or "") == 401
    with served.connect(ann) as kept, served.connect(other) as revoked:
        revoke_tokens(file, token_id(other) or "")
        with pytest.raises(ConnectionClosed) as ended:
            wait_until(lambda: revoked.recv(PATIENCE_S) == "")
        assert ended.value.rcvd is not None
        assert (ended.value.rcvd.code, ended.value.rcvd.reason) == (1008, "the token was revoked")
        assert status(served, "/props", other) == 401
        with pytest.raises(InvalidStatus, match="401"):
            served.connect(other)
        assert isinstance(complete(kept, "c/a.py"), Completed)
    assert joins("ann") not in (ann, other)
    assert status(served, "/props", other) == 401


def test_a_revoked_user_that_reads_nothing_is_ended_too(
    served: Served, file: Path, joins: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.core.connections.LAST_FRAME_S", 0.05)
    with served.connect(joins("ann")) as client:
        client.recv(PATIENCE_S)
        wait_until(lambda: served.clients.connections == 1)
        revoke_tokens(file, "ann")
        wait_until(lambda: served.clients.connections == 0)


def test_the_core_proves_that_it_knows_a_users_token(served: Served, joins: Callable[[str], str]) -> None:
    token, nonce = joins("ann"), "n" * 32
    told = ask(served, f"/proof?nonce={nonce}&id={token_id(token)}", "")
    assert told == proof(token_digest(token), nonce, served.address)
    unknown = {ask(served, f"/proof?nonce={nonce}&id={'0' * 16}", "") for _ in range(2)}
    assert len(unknown) == 2  # which says nothing of the users
    assert ask(served, f"/proof?nonce={nonce}", "") == proof(TOKEN, nonce, int(served.address.split(":")[1]))


async def test_a_client_sends_a_users_token_only_to_a_core_that_knows_it(served: Served, file: Path) -> None:
    token = add_token(file, "ann")
    endpoint = Endpoint(f"ws://{served.address}/ws", token)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(Unauthorized):
                await (await CoreClient.open(endpoint, lambda _: None)).close()
                break
            await asyncio.sleep(0.02)
    stranger = add_token(file.with_name("other.json"), "ann")
    with pytest.raises(Unauthorized, match="does not know this token"):
        await CoreClient.open(Endpoint(endpoint.url, stranger), lambda _: None)


def test_a_token_is_for_its_role_alone(served: Served, file: Path, joins: Callable[[str], str]) -> None:
    ann, scraper = joins("ann"), add_token(file, "prometheus", "metrics")
    wait_until(lambda: status(served, "/metrics", scraper) == 200)
    assert status(served, "/props", scraper) == 403
    assert status(served, "/infill", scraper, input_prefix="x") == 403
    with pytest.raises(InvalidStatus, match="403"):
        served.connect(scraper)
    assert [status(served, "/metrics", token) for token in (ann, TOKEN, "")] == [403, 200, 401]


def test_a_user_neither_stops_nor_unloads_the_core(served: Served, joins: Callable[[str], str]) -> None:
    ann = joins("ann")
    with served.connect(ann) as client:
        assert isinstance(complete(client, "c/a.py"), Completed)
        for message in (Unload(), Stop("stop"), Stop("replace")):
            client.send(encode(message))
            assert isinstance(receive(client), Kept)
    assert status(served, "/api/generate", ann, keep_alive=0) == 403
    assert (served.scheduler.status.state, served.shutdown.due) == ("ready", False)
    assert ask(served, "/api/generate", TOKEN, keep_alive=0)["done_reason"] == "unload"


def test_nobody_forgets_or_releases_what_another_user_has(served: Served, joins: Callable[[str], str]) -> None:
    ann, bob = joins("ann"), joins("bob")
    other = TEXT.replace("total", "count")
    with served.connect(ann) as hers, served.connect(bob) as his:
        recomputed(hers, "c/a.py", other)
        recomputed(his, "c/a.py")
        for session in ("c/a.py", "*/a.py", "c/bob/a.py", "*/bob/a.py", "bob/a.py", "a.py", "/bob/a.py"):
            hers.send(encode(Forget(session)))
        assert recomputed(hers, "c/b.py", other) > 20  # her own are gone
        assert recomputed(his, "c/a.py", TEXT + "y") < 10


def test_an_exclusion_drops_the_anchors_of_the_users_http_clients(served: Served, joins: Callable[[str], str]) -> None:
    ann, bob = joins("ann"), joins("bob")
    for token in (ann, bob, TOKEN):
        ask(served, "/infill", token, input_prefix=TEXT, n_predict=1, session="a.py")
        ask(served, "/infill", token, input_prefix=TEXT, n_predict=1)
    names = ["http/ann/a.py", "anonymous/ann/", "http/bob/a.py", "anonymous/bob/", "http/a.py", "anonymous"]
    assert sorted(map(str, served.anchors._sessions)) == sorted(names)
    with served.connect(ann) as client:
        client.send(encode(Forget("c/secret.py")))
        complete(client, "c/a.py")
    assert sorted(map(str, served.anchors._sessions)) == sorted(names[2:])


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_two_writers_lose_no_user(file: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda number: add_token(file, f"user{number}"), range(24)))
    assert len(read_users(file)) == 24
