"""Tokens for access to a core: a user's token and its digest, and the core's proof that it knows a token.

The client requests `GET /proof?nonce=NONCE` without a token; the core answers with `proof(token, nonce, port)`, where
`port` is its own. A program that listens on the port of an ended core cannot compute the answer, and cannot relay that
of a core on another port.

A user's token is not known to the core, which keeps its digest. The client adds `id=ID`, the public part of the token,
and the core answers with `proof(token_digest(token), nonce, host)`, where `host` is the request's Host header: ports
differ behind tunnels and containers. Only TLS protects from a program that relays every byte.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

PROOF_PATH = "/proof"
NONCE_LENGTHS = range(16, 129)


def proof(key: str, nonce: str, place: int | str) -> str:
    """The answer of the core that knows this key at this place, a port or a host: 64 hexadecimal digits."""
    return hmac.digest(key.encode(), f"midfill core {place} {nonce}".encode(), "sha256").hex()


_TOKEN = re.compile(r"midfill_([0-9a-f]{16})_[\w-]{43}", re.ASCII)


def new_token() -> str:
    """A random token, `midfill_ID_SECRET`. The id is public; the secret has 256 bits."""
    return f"midfill_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}"


def token_id(token: str) -> str | None:
    """The public id in a user's token; None for other tokens, such as a machine's own."""
    found = _TOKEN.fullmatch(token)
    return found[1] if found else None


def token_digest(token: str) -> str:
    """The token's SHA-256 in hexadecimal digits.

    A slow hash such as argon2 protects secrets that can be guessed; nobody guesses 256 random bits.
    """
    return hashlib.sha256(token.encode()).hexdigest()
