"""TLS over real sockets: the certificate, what is refused, and handshakes that never end."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

from inference.core.process import check_certificate
from inference.loading.options import EngineOptions
from lsp_server.core_client.client import CoreClient, Endpoint
from protocol.errors import BadInput, CoreUnavailable
from protocol.messages import CompletionRequest, Prompt
from tests.inference.core.test_connections import plain, read_all
from tests.inference.serving import BEARER, PATIENCE_S, TOKEN, Served, serving, wait_until

pytestmark = pytest.mark.usefixtures("quick_core")


def issue(folder: Path) -> trustme.CA:
    """A new authority, and the core's certificate by it."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    for name, blobs in (("cert.pem", certificate.cert_chain_pems), ("key.pem", [certificate.private_key_pem])):
        new = folder / f"{name}.new"
        new.write_bytes(b"".join(blob.bytes() for blob in blobs))
        new.replace(folder / name)
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    return authority


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    issue(tmp_path)
    return tmp_path


@pytest.fixture
def served(folder: Path, tiny_checkpoint: Path) -> Iterator[Served]:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)
    with serving(options, certificate=(folder / "cert.pem", folder / "key.pem")) as served:
        yield served


def health(served: Served, folder: Path) -> int:
    context = ssl.create_default_context(cafile=folder / "authority.pem")
    connection = http.client.HTTPSConnection(served.address, timeout=PATIENCE_S, context=context)
    connection.request("GET", "/health", headers=BEARER)
    status = connection.getresponse().status
    connection.close()
    return status


async def test_a_client_connects_that_knows_the_authority(served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(f"wss://{served.address}/ws", TOKEN)
    with pytest.raises(CoreUnavailable, match="certificate"):
        await CoreClient.open(endpoint, lambda _: None)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "authority.pem"))
    client = await CoreClient.open(endpoint, lambda _: None)
    for text in ("", "x" * 100_000):
        assert await client.complete(CompletionRequest("a.py", Prompt("def f():\n" + text, "\n"), 2))
    await client.close()
    assert health(served, folder) == 200


@pytest.mark.parametrize("path", ["/health", "/ws", "/proof?nonce=" + "n" * 32])
def test_plain_requests_get_nothing(served: Served, path: str) -> None:
    with plain(served) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: {served.address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert b"HTTP" not in read_all(client)


def test_handshakes_that_never_end_keep_nobody_from_being_served(served: Served, folder: Path) -> None:
    with ExitStack() as opened:
        idle = [opened.enter_context(plain(served)) for _ in range(100)]
        for client in idle[::2]:
            client.sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake
        assert health(served, folder) == 200
    with plain(served) as client:
        client.sendall(b"\x00" * 600)
        client.shutdown(socket.SHUT_WR)
        assert b"HTTP" not in read_all(client)
    wait_until(lambda: len(served.connections) == 0)


@pytest.mark.parametrize("spoil", ["missing", "nonsense", "other key", "encrypted"])
def test_files_that_are_no_certificate_with_its_key_are_named(folder: Path, spoil: str) -> None:
    chain, key = folder / "cert.pem", folder / "key.pem"
    if spoil == "missing":
        key.unlink()
    elif spoil == "nonsense":
        chain.write_bytes(os.urandom(100))
    elif spoil == "encrypted":
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        encryption = serialization.BestAvailableEncryption(b"secret")
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    else:
        trustme.CA().issue_cert("127.0.0.1").private_key_pem.write_to_path(str(key))
    with pytest.raises(BadInput, match=r"cert\.pem and .*key\.pem cannot be used"):
        check_certificate(chain, key)
