"""The proof by which a core shows that it knows the token before a client sends it.

The client requests `GET /proof?nonce=NONCE` without a token; the core answers with `proof(token, nonce, port)`, where
`port` is its own. A program that listens on the port of an ended core cannot compute the answer, and cannot relay that
of a core on another port.
"""

from __future__ import annotations

import hmac

PROOF_PATH = "/proof"
NONCE_LENGTHS = range(16, 129)


def proof(token: str, nonce: str, port: int) -> str:
    """The answer of the core with this token on this port: 64 hexadecimal digits."""
    return hmac.digest(token.encode(), f"midfill core {port} {nonce}".encode(), "sha256").hex()
