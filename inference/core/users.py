"""The file of a core's users: who may connect, by the digests of their tokens."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from filelock import FileLock

from inference.engine.sessions import USER_NAME
from protocol.errors import BadInput
from protocol.rendezvous import naming, write_private
from protocol.tokens import new_token, token_digest, token_id

Role = Literal["user", "metrics"]
MAX_FILE_BYTES = 2**24

log = logging.getLogger(__name__)


class UserToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One token of a user; a user may have several, such as one for each machine."""

    name: str
    id: str
    sha256: str
    added: str  # when, in UTC
    role: Role = "user"  # "metrics" reads /metrics and nothing else


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[UserToken, ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    """The sender of a request. `name` is empty for the core's own token, whose holder may do everything."""

    name: str = ""
    token_id: str = ""
    role: Literal["owner", "user", "metrics"] = "owner"

    @property
    def is_owner(self) -> bool:
        return self.role == "owner"

    def may_use(self, path: str) -> bool:
        """Whether the user may request this path: users' requests concern themselves, metrics all users."""
        if path == "/health" or self.is_owner:
            return True
        if path.startswith("/dashboard/"):  # which shows the prompts of all users
            return False
        return (path == "/metrics") == (self.role == "metrics")


def read_users(file: Path) -> tuple[UserToken, ...]:
    """The tokens in the file, none if it is missing. Raises BadInput if it cannot be read or others can write to it."""
    with naming(file):
        try:
            with file.open("rb") as opened:
                mode, content = os.fstat(opened.fileno()).st_mode, opened.read(MAX_FILE_BYTES)
        except FileNotFoundError:
            return ()
    if os.name == "posix" and mode & 0o022:
        raise BadInput(f"other users can write to {file} (mode {mode & 0o777:o}): run chmod 600 {file}")
    try:
        tokens = msgspec.json.decode(content, type=_File).tokens
    except ValueError as error:
        raise BadInput(f"{file} is not a file of users: {error}") from error
    for token in tokens:
        _check_name(token.name)
    return tokens


def add_token(file: Path, name: str, role: Role = "user") -> str:
    """Add a token for the user and return it: the file has only its digest. Raises BadInput."""
    _check_name(name)
    token = new_token()
    entry = UserToken(name, token_id(token) or "", token_digest(token), datetime.now(UTC).isoformat(timespec="seconds"), role)
    with naming(file), FileLock(f"{file}.lock", mode=0o600):
        _write(file, (*read_users(file), entry))
    return token


def revoke_tokens(file: Path, which: str) -> tuple[UserToken, ...]:
    """Remove all tokens of the user, or the one with this id; returns them. Raises BadInput if there is none."""
    with naming(file), FileLock(f"{file}.lock", mode=0o600):
        tokens = read_users(file)
        revoked = tuple(token for token in tokens if which in (token.name, token.id))
        if not revoked:
            raise BadInput(f"{file} has no user and no token {which!r}")
        _write(file, tuple(token for token in tokens if token not in revoked))
    return revoked


class Users:
    """The users that a running core knows; follows changes of the file. For the event loop's thread only."""

    def __init__(self, file: Path) -> None:
        """Raises BadInput as `read_users`; a missing file has no users yet."""
        self._file = file
        self._seen = self._state()
        self._tokens = _by_id(read_users(file))

    def find(self, token: str) -> User | None:
        """The user with this token; compared in constant time."""
        known = self._tokens.get(token_id(token) or "")
        if known is None or not secrets.compare_digest(known.sha256, token_digest(token)):
            return None
        return User(known.name, known.id, known.role)

    def digest_of(self, token_id: str) -> str:
        """The digest of the token with this public id; a random one if there is none, so that ids are not revealed."""
        known = self._tokens.get(token_id)
        return known.sha256 if known is not None else secrets.token_hex(32)

    def refresh(self, on_revoked: Callable[[frozenset[str]], None]) -> None:
        """Read the file again if it has changed; calls `on_revoked` with the ids of tokens that are gone.

        If the file cannot be read, or is missing, the users stay as they are, and the log says so.
        """
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        if state is None:
            log.error("%s is missing: the users stay as they were", self._file)
            return
        try:
            tokens = _by_id(read_users(self._file))
        except BadInput as error:
            log.error("the users stay as they were: %s", error)
            return
        revoked = frozenset(self._tokens.keys() - tokens.keys())
        log.info("%s: %d tokens added, %d revoked", self._file, len(tokens.keys() - self._tokens.keys()), len(revoked))
        self._tokens = tokens
        if revoked:
            on_revoked(revoked)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _by_id(tokens: tuple[UserToken, ...]) -> Mapping[str, UserToken]:
    return {token.id: token for token in tokens}


def _check_name(name: str) -> None:
    if not USER_NAME.fullmatch(name):
        raise BadInput(f"{name!r} cannot be a user's name: use 1 to 64 of the characters A-Z a-z 0-9 . _ @ + -")


def _write(file: Path, tokens: tuple[UserToken, ...]) -> None:
    write_private(file, msgspec.json.format(msgspec.json.encode(_File(tokens))).decode() + "\n")
