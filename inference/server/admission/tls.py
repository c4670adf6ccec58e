"""TLS: the core's certificate, and connections until their handshake has ended."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

from uvicorn.protocols.utils import get_local_addr, get_remote_addr

from inference.server.admission.connections import TOKEN_WITHIN_S, Address, Connections
from protocol.errors import BadInput

log = logging.getLogger(__name__)


class Certificate:
    """A certificate chain and its key; follows changes of the files. For the event loop's thread only."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Raises BadInput if the files are no certificate with its key; an encrypted key is not supported."""
        self._files = chain, key
        self._seen = self._state()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._load(self.context)

    def refresh(self) -> None:
        """Use new files for later connections; the log names an error, and the certificate stays as it was."""
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # a failure would leave a chain without its key
            self._load(self.context)
        except BadInput as error:
            log.error("the certificate stays as it was: %s", error)
        else:
            log.info("read the certificate %s again", self._files[0])

    def _load(self, context: ssl.SSLContext) -> None:
        chain, key = self._files
        try:
            context.load_cert_chain(chain, key, password="")  # without one, OpenSSL would ask at the terminal
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise BadInput(f"{chain} and {key} cannot be used as a certificate and its key: {error}") from error

    def _state(self) -> list[tuple[int, int] | None]:
        return [_state(file) for file in self._files]


class TlsDoor(asyncio.Protocol):
    """A connection during its handshake, which counts as a stranger's; then `make_http` takes it over.

    uvicorn's own TLS would not count it: each has a buffer of 256 KiB. At the address `plain` there is no TLS.
    """

    def __init__(
        self,
        certificate: Certificate,
        connections: Connections,
        plain: tuple[str, int],
        make_http: Callable[[], asyncio.Protocol],
    ) -> None:
        self._certificate = certificate
        self._bounds = connections
        self._plain = plain
        self._make_http = make_http
        self._address: Address = (None, None)
        self._early = bytearray()  # arrived with the end of the handshake
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        local = get_local_addr(transport)
        if local == self._plain:
            self._hand_over(transport)
            return
        transport.pause_reading()  # the handshake begins with the first byte
        self._address = get_remote_addr(transport), local
        self._bounds.made(self._address, transport)
        self._handshake = asyncio.get_running_loop().create_task(self._shake_hands(transport))

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._is_lost = True
        self._bounds.lost(self._address)

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, self, self._certificate.context, server_side=True, ssl_handshake_timeout=TOKEN_WITHIN_S
            )
        except OSError as error:  # what is no TLS, too old a version, a lost connection
            log.debug("no TLS with %s: %s", self._address, error)
            self._bounds.abort(self._address)
        else:
            if secured is not None and not self._is_lost:
                self._hand_over(secured)

    def _hand_over(self, transport: asyncio.Transport) -> None:
        http = self._make_http()
        transport.set_protocol(http)
        http.connection_made(transport)
        if self._early:
            http.data_received(bytes(self._early))


def _state(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
