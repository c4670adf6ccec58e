"""Requires the process at a core's address to prove that it knows the token, before the token is sent there."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from lsp_server.core.network_errors import in_words
from protocol.errors import CoreSilent, CoreUnavailable, Unauthorized
from protocol.proof import PROOF_PATH, proof
from protocol.user_tokens import token_digest, token_id

_TIMEOUT_S = 2.0
_LONGEST_ANSWER = 256


async def check_proof(url: str, token: str) -> None:
    """Return if the core at this `ws://` address knows the token.

    Raises CoreUnavailable if nothing listens, CoreSilent if the answer takes too long, and Unauthorized if the answer
    does not prove knowledge of the token.
    """
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    named = address.netloc.rpartition("@")[2]
    nonce, user_id = secrets.token_hex(16), token_id(token)
    query = f"nonce={nonce}&id={user_id}" if user_id else f"nonce={nonce}"
    expected = proof(token_digest(token), nonce, named) if user_id else proof(token, nonce, port)
    try:
        async with asyncio.timeout(2 * _TIMEOUT_S):  # the thread's own timeout restarts at every byte
            answer = await asyncio.to_thread(_ask, host, port, named, query)
    except TimeoutError as error:
        raise CoreSilent(f"the core at {url} does not answer") from error
    except HTTPException as error:
        raise CoreUnavailable(f"{url} does not answer as a core does: {error!r}") from error
    except OSError as error:
        raise CoreUnavailable(f"no core answers at {url}: {in_words(error)}") from error
    if not hmac.compare_digest(answer, expected.encode()):
        if user_id:
            raise Unauthorized(f"the server at {url} does not know this token: it was revoked, or that is not the core")
        raise Unauthorized(f"the server at {url} does not know this machine's token: it is not a core, or not yours")


def _ask(host: str, port: int, named: str, query: str) -> bytes:
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", f"{PROOF_PATH}?{query}", headers={"Host": named})
        return connection.getresponse().read(_LONGEST_ANSWER)
    finally:
        connection.close()
