"""Keys of sessions: what a client names, and what the store, the pages and the disk call it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.sessions import session_key
from protocol.messages import ANONYMOUS


@pytest.mark.parametrize(
    ("name", "user", "shown", "document"),
    [
        ("me/file:///a.py", "", "me/file:///a.py", "file:///a.py"),
        ("me/file:///a.py", "ann", "me/ann/file:///a.py", "ann/file:///a.py"),
        ("me/ann/a.py", "", "me//ann/a.py", "/ann/a.py"),  # a document of the core's own token, not Ann's
        ("a.py", "", "a.py", "a.py"),
        ("a.py", "ann", "/ann/a.py", "ann/a.py"),
        (ANONYMOUS, "", ANONYMOUS, ANONYMOUS),
        (ANONYMOUS, "ann", "anonymous/ann/", "ann/"),
    ],
)
def test_a_document_has_one_name_for_all_clients_of_a_user(name: str, user: str, shown: str, document: str) -> None:
    key = session_key(name, user)
    assert (str(key), key.document, key.user, key.is_anonymous) == (shown, document, user, name == ANONYMOUS)


NAMES = st.one_of(st.sampled_from([ANONYMOUS, "", "/"]), st.text("a/:n", max_size=8))


@given(NAMES, NAMES)
def test_users_never_meet(name: str, other: str) -> None:
    documents = [session_key(name, user).document for user in ("", "a", "an")]
    assert not {*documents[1:]} & {session_key(other).document, session_key(other, "nn").document, documents[0]}
    assert documents[1] != documents[2]


def test_a_short_prompt_has_a_session_of_its_own_in_the_same_document() -> None:
    key = session_key("me/a.py")
    assert (key.short == key, key.short.document, str(key.short)) == (False, key.document, "me~short/a.py")
