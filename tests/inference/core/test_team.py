"""A core for a team as a process: TLS, users, JSON logs, and its end with a request at work."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from protocol.rendezvous import address_file, read_or_make_token
from tests.inference.core.test_process import wait_for_address
from tests.inference.core.test_tls import issue
from tests.inference.serving import PATIENCE_S, wait_until

SECRET = "unmistakable_document_text"


DRAIN_S = 240


def midfill(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "midfill", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_core_for_a_team(tiny_checkpoint: Path, tmp_path: Path) -> None:
    issue(tmp_path)
    users, cache, log = tmp_path / "users.json", tmp_path / "cache", tmp_path / "core.log"
    environment = {**os.environ, "MIDFILL_RUNTIME_DIR": str(tmp_path), "MIDFILL_CACHE_DIR": str(cache)}
    ann, bob = (midfill(environment, "token", "add", name, "--users", str(users)).strip() for name in ("ann", "bob"))
    options = [
        *("--model", str(tiny_checkpoint), "--threads", "1", "--context-tokens", "2048", "--drain-s", str(DRAIN_S)),
        *("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")),
        *("--users", str(users), "--separate-users", "--log-file", str(log), "--log-format", "json"),
    ]
    process = subprocess.Popen([sys.executable, "-m", "midfill", "core", *options], env=environment, text=True)
    try:
        plain = wait_for_address(process, tiny_checkpoint, tmp_path).url.replace("ws://", "http://").removesuffix("/ws")
        port = re.search(r"serving TLS at [\d.]+:(\d+)", log.read_text())
        assert port is not None
        context = ssl.create_default_context(cafile=tmp_path / "authority.pem")

        def ask(url: str, token: str, **fields: Any) -> Any:
            body = json.dumps(fields).encode() if fields else None
            request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"})
            return urllib.request.urlopen(request, timeout=PATIENCE_S, context=context if url.startswith("https") else None)

        secured = f"https://localhost:{port[1]}"
        body = {"input_prefix": f"{SECRET} = 1\n" * 20, "n_predict": 4, "session": SECRET}
        assert json.load(ask(f"{secured}/infill", ann, **body))["tokens_predicted"] > 0
        cached = [json.load(ask(f"{secured}/infill", token, **body))["tokens_cached"] for token in (bob, bob, ann)]
        assert cached[0] == 0 < cached[1] == cached[2]
        assert ask(f"{plain}/health", read_or_make_token(tmp_path)).status == 200  # this machine's own programs
        assert f"  {ann.split('_')[1]}  user  " in midfill(environment, "token", "list", "--users", str(users))

        with connect(
            f"wss://localhost:{port[1]}/ws", ssl=context, additional_headers={"Authorization": f"Bearer {ann}"}
        ) as client:
            midfill(environment, "token", "revoke", "ann", "--users", str(users))
            with pytest.raises(ConnectionClosed, match="the token was revoked"):
                wait_until(lambda: client.recv(PATIENCE_S) == "")

        owner = read_or_make_token(tmp_path)
        key = json.load(ask(f"{plain}/dashboard/link", owner, any=1))["key"]
        dashboard = ask(f"{plain}/dashboard/events", key)  # for which nothing waits
        assert dashboard.readline().startswith(b"data: ")

        content = json.dumps({"input_prefix": "x = ", "n_predict": 2}).encode()
        head = [
            *("POST /infill HTTP/1.1", "Host: localhost", "Connection: close", "Expect: 100-continue"),
            *(f"Authorization: Bearer {owner}", f"Content-Length: {len(content)}", "", ""),
        ]
        with (
            socket.create_connection(("127.0.0.1", int(port[1])), PATIENCE_S) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as upload,
        ):
            upload.sendall("\r\n".join(head).encode())
            assert upload.recv(12) == b"HTTP/1.1 100"  # it is in progress
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: _status(ask, f"{secured}/health") == 503)
            assert _status(ask, f"{secured}/infill", input_prefix="x") == 503
            upload.sendall(content)
            assert b"HTTP/1.1 200 OK" in b"".join(iter(lambda: upload.recv(4096), b""))
        assert process.wait(DRAIN_S / 2) == 0
    finally:
        process.kill()
        process.wait()
    assert not address_file(tmp_path, str(tiny_checkpoint)).exists()
    assert list(cache.rglob("*.safetensors"))
    logged = log.read_text()
    assert SECRET not in logged
    assert ann not in logged
    told = [json.loads(line) for line in logged.splitlines() if line.startswith("{")]
    first = next(line for line in told if line["message"] == "request")
    assert (first["user"], first["kind"], first["outcome"]) == ("ann", "suggestion", "completed")
    assert first["recomputed_tokens"] > 20
    assert first["ms"] >= first["prefill_ms"]
    assert re.fullmatch("[0-9a-f]{16}", first["session"])


def _status(ask: Any, url: str, **fields: Any) -> int:
    try:
        return int(ask(url, "", **fields).status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
