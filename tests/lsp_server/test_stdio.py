"""Stdin of every kind that a client may give, with messages longer than any pipe holds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

NO_CORE = {**os.environ, "MIDFILL_CORE": "ws://127.0.0.1:9/ws"}
LSP = (sys.executable, "-m", "midfill", "lsp")
ATTENTIVE = """
import lsp_server.launch
import midfill.__main__

lsp_server.launch._PARENT_SECONDS = 0.1
midfill.__main__.main()
"""
LONG = "x" * 500_000
LAST = 3  # of three requests


def message(method: str, params: object, number: int | None = None) -> bytes:
    fields = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
    body = json.dumps(fields).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


DOCUMENT = {"uri": "file:///a.py", "languageId": "python", "version": 1, "text": LONG}
SESSION = b"".join(
    (
        message("initialize", {"capabilities": {}}, 1),
        message("initialized", {}),
        message("textDocument/didOpen", {"textDocument": DOCUMENT}),
        message("midfill/documentHash", {"textDocument": {"uri": DOCUMENT["uri"]}}, 2),
        message("shutdown", None, LAST),
    )
)


def answers(stream: IO[bytes]) -> dict[int, dict[str, Any]]:
    """What a server writes until it has answered all requests, by their ids."""
    found: dict[int, dict[str, Any]] = {}
    while len(found) < LAST:
        length = stream.readline()
        while stream.readline().strip():
            pass  # another header
        body = json.loads(stream.read(int(length.split(b":")[1])))
        if "id" in body:
            found[body["id"]] = body
    return found


def check(found: dict[int, dict[str, Any]]) -> None:
    assert sorted(found) == [1, 2, LAST]
    assert found[2]["result"]["length"] == len(LONG)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_bytes(SESSION)
    with path.open("rb") as file, subprocess.Popen(LSP, env=NO_CORE, stdin=file, stdout=subprocess.PIPE) as process:
        check(answers(process.stdout))


def test_one_socket_for_both_directions() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(LSP, env=NO_CORE, stdin=theirs, stdout=theirs)
        theirs.close()
        with ours.makefile("rwb") as stream:
            stream.write(SESSION)
            stream.flush()
            check(answers(stream))
            stream.write(message("exit", None))
        assert process.wait(100) == 0


def test_a_client_that_is_gone_is_no_error() -> None:
    """What it would have been told, that the link has stopped, has nowhere to go."""
    knowing = message("initialize", {"capabilities": {"experimental": {"midfill": True}}}, 1)
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(LSP, env=NO_CORE, **streams) as process:
        process.stdin.write(knowing + message("initialized", {}))
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.close()
        errors = process.stderr.read()
    assert process.returncode == 1, "LSP's status for a client that left without a shutdown"
    assert b"Traceback" not in errors, errors.decode()


@pytest.mark.parametrize("stdin_is_polled", [True, False])
def test_the_end_of_the_clients_process_ends_the_server(tmp_path: Path, *, stdin_is_polled: bool) -> None:
    """Also where something else keeps stdin open."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    hello = message("initialize", {"processId": gone.pid, "capabilities": {}}, 1)
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "out").open("wb") as out:
        ours.sendall(hello)
        command = (sys.executable, "-c", ATTENTIVE, "lsp")
        process = subprocess.Popen(command, env=NO_CORE, stdin=theirs, stdout=out if stdin_is_polled else theirs)
        assert process.wait(100) == 1


def test_a_client_that_dies_in_the_middle_of_a_message() -> None:
    torn = message("initialize", {"capabilities": {}}, 1) + message("initialized", {})[:-1]
    done = subprocess.run(LSP, env=NO_CORE, input=torn, capture_output=True, timeout=100, check=False)
    assert done.returncode == 1, "LSP's status for a client that left without a shutdown"
    assert b"Traceback" not in done.stderr


def test_a_request_after_the_shutdown_is_refused() -> None:
    more = message("shutdown", None, LAST + 1) + message("exit", None)
    done = subprocess.run(LSP, env=NO_CORE, input=SESSION + more, capture_output=True, timeout=100, check=False)
    assert done.returncode == 0
    assert b"shutdown after shutdown" in done.stdout
