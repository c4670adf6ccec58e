"""Names sessions so that those of different users never meet."""

from __future__ import annotations

import re
from typing import Any

from inference.text.tokenization import LRUCache
from kv_store.interface import document_of
from protocol.messages import ANONYMOUS

_SHORT = "~short"
USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")


def session_of_user(user: str, session: str) -> str:
    """The session's name in the core: `client/user/document`, which no other user's session can have.

    A user's name has no slash. Without a user (the core's own token) the name stays as it is, unless it looks like a
    user's.
    """
    if not user:
        client, _, document = session.partition("/")
        return f"{client}//{document}" if user_of(session) else session
    if session == ANONYMOUS:
        return f"{ANONYMOUS}/{user}/"
    client, slash, document = session.partition("/")
    return f"{client}/{user}/{document}" if slash else f"/{user}/{session}"


def is_of_user(user: str, session: str) -> bool:
    """Whether a name by `session_of_user` belongs to the user."""
    return session.split("/", 2)[1:2] == [user]


def user_of(session: str) -> str:
    """The user in a name by `session_of_user`; empty for the core's own token."""
    name, slash, _ = document_of(session).partition("/")
    return name if slash and USER_NAME.fullmatch(name) else ""


def drop_document(known: LRUCache[str, Any], session: str) -> None:
    """Remove what is known, by session, of the session's document."""
    document = document_of(session)
    for each in [each for each in known if document_of(each) == document]:
        known.remove(each)


def short_session(session: str) -> str:
    """The session of a session's short prompts, of the same document: it has a workspace of its own."""
    client, slash, document = session.partition("/")
    return f"{client}{_SHORT}/{document}" if slash else f"{_SHORT}/{session}"


def is_short(session: str) -> bool:
    """Whether a name is by `short_session`."""
    return session.partition("/")[0].endswith(_SHORT)


def is_anonymous(session: str) -> bool:
    """Whether the session stands for a user's unrelated prompts, which are distinguished by their text."""
    return session == ANONYMOUS or session.startswith(f"{ANONYMOUS}/")
