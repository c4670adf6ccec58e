"""Runs a core as a file in deploy/ starts it, and asks it as a user on another machine does."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.deploy.starts import HOST, Start

PATIENCE_S = 100.0


@dataclass(frozen=True)
class Core:
    """A core that a file in deploy/ has started, at a port of this machine."""

    process: subprocess.Popen[bytes]
    port: int
    host: str  # how its users address it
    authority: ssl.SSLContext | None  # None without TLS

    def listens(self) -> bool:
        """Whether it does by now."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def ask(self, path: str, body: object = None, token: str = "") -> tuple[int, str]:
        """The status and the text of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        if self.authority is not None:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_S, context=self.authority)
        headers = {"Host": self.host} | ({"Authorization": f"Bearer {token}"} if token else {})
        with closing(connection):
            connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read().decode()


def issue(folder: Path, certificate: str, key: str) -> ssl.SSLContext:
    """Put a certificate, its key and its authority (authority.pem) into the folder; what trusts them."""
    authority, context = trustme.CA(), ssl.create_default_context()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    issued = authority.issue_cert("127.0.0.1", "localhost", HOST)
    (folder / certificate).write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / key).write_bytes(issued.private_key_pem.bytes())
    authority.configure_trust(context)
    return context


@contextmanager
def running(midfill: Sequence[str], start: Start, port: int, authority: ssl.SSLContext | None = None) -> Iterator[Core]:
    """The started core, from when it listens on; in the end it gets SIGTERM. `midfill` is the program."""
    host = HOST if any(HOST in argument for argument in start.arguments) else "localhost"
    environment = start.variables | {"PATH": os.environ["PATH"]}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([*midfill, *start.arguments], env=environment, stderr=log) as process,
    ):
        core = Core(process, port, host, authority)
        try:
            while not core.listens():
                log.seek(0)
                assert process.poll() is None, log.read()
                time.sleep(0.1)
            yield core
        finally:
            process.terminate()
