"""Names sessions so that those of different users never meet."""

from __future__ import annotations

from protocol.messages import ANONYMOUS


def session_of_user(user: str, session: str) -> str:
    """The session's name in the core: `client/user/document`, which no other user's session can have.

    A user's name has no slash. Without a user (the core's own token) the name stays as it is.
    """
    if not user:
        return session
    if session == ANONYMOUS:
        return f"{ANONYMOUS}/{user}/"
    client, slash, document = session.partition("/")
    return f"{client}/{user}/{document}" if slash else f"/{user}/{session}"


def is_of_user(user: str, session: str) -> bool:
    """Whether a name by `session_of_user` belongs to the user."""
    return session.split("/", 2)[1:2] == [user]


def is_anonymous(session: str) -> bool:
    """Whether the session stands for a user's unrelated prompts, which are distinguished by their text."""
    return session == ANONYMOUS or session.startswith(f"{ANONYMOUS}/")
