"""How a core proves that it knows the token before a client sends it.

The client asks `GET /proof?nonce=NONCE` without a token; the core answers with `proof(token, nonce, port)`, where
`port` is the one it listens on. A program that listens on the port of a core that has ended cannot answer, and the
answer of a core that listens on another port is of no use to it.
"""

from __future__ import annotations

import hmac

PROOF_PATH = "/proof"
NONCE_LENGTHS = range(16, 129)


def proof(token: str, nonce: str, port: int) -> str:
    """The answer of the core with this token at this port: 64 hexadecimal digits."""
    return hmac.digest(token.encode(), f"midfill core {port} {nonce}".encode(), "sha256").hex()
