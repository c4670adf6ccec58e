"""The tokens of a core's users: their form, and the digest that the core keeps instead of them."""

from __future__ import annotations

import hashlib
import re
import secrets

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
