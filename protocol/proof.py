"""The proof by which a core shows that it knows the token before a client sends it.

The client requests `GET /proof?nonce=NONCE` without a token; the core answers with `proof(token, nonce, port)`, where
`port` is its own. A program that listens on the port of an ended core cannot compute the answer, and cannot relay that
of a core on another port.

A user's token is not known to the core, which keeps its digest. The client adds `id=ID`, the public part of the token,
and the core answers with `proof(token_digest(token), nonce, host)`, where `host` is the request's Host header: ports
differ behind tunnels and containers. Only TLS protects from a program that relays every byte.
"""

from __future__ import annotations

import hmac

PROOF_PATH = "/proof"
NONCE_LENGTHS = range(16, 129)


def proof(key: str, nonce: str, place: int | str) -> str:
    """The answer of the core that knows this key at this place, a port or a host: 64 hexadecimal digits."""
    return hmac.digest(key.encode(), f"midfill core {place} {nonce}".encode(), "sha256").hex()
