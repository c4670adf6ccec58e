"""Makes keys of sessions from the names that clients give them, so that those of different users never meet."""

from __future__ import annotations

import re

from kv_store.interface import SessionKey
from protocol.messages import ANONYMOUS

USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_USERS_DOCUMENT = re.compile(f"{USER_NAME.pattern}/")


def session_key(name: str, user: str = "") -> SessionKey:
    """The key of a session that the user's client names `client/document`, or ANONYMOUS for its unrelated prompts.

    A user's name has no slash. Without a user (the core's own token) the document is as the client names it, unless
    that looks like a user's.
    """
    client, _, document = name.partition("/")
    is_anonymous = client == ANONYMOUS
    if not document and not (user and is_anonymous):
        client, document = "", name
    if user:
        document = f"{user}/{document}"
    elif _USERS_DOCUMENT.match(document):
        document = f"/{document}"
    return SessionKey(client, document, user, is_anonymous)
