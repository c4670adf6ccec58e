"""Where language servers find the core of this machine: the runtime folder, its token and its address.

The core writes `core-KEY.json` (KEY from the model it serves, so that two models mean two cores) once it
listens, and removes it when it exits. Everything in the folder is readable by its user alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock

from protocol.errors import BadInput
from protocol.settings import BUNDLED_MODEL


@dataclass(frozen=True, slots=True)
class CoreAddress:
    """A listening core."""

    url: str  # ws://127.0.0.1:PORT/ws
    pid: int
    model: str


def runtime_folder() -> Path:
    """The folder of this user's cores, made if need be with mode 0700; `MIDFILL_RUNTIME_DIR` overrides it.

    BadInput if it cannot be made.
    """
    override = os.environ.get("MIDFILL_RUNTIME_DIR")
    if override:
        folder = Path(override)
    elif sys.platform == "linux" and not os.environ.get("XDG_RUNTIME_DIR"):
        # Without a login session there is no folder for sockets and such; a shared /tmp is no place for a token.
        folder = Path(platformdirs.user_state_dir("midfill", appauthor=False)) / "run"
    else:
        folder = Path(platformdirs.user_runtime_dir("midfill", appauthor=False))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"the runtime folder {folder} cannot be made: {error.strerror}. MIDFILL_RUNTIME_DIR names another"
        ) from error
    return folder


def cache_folder() -> Path:
    """Where cores keep KV on disk, not made yet; `MIDFILL_CACHE_DIR` overrides it."""
    override = os.environ.get("MIDFILL_CACHE_DIR")
    return Path(override) if override else Path(platformdirs.user_cache_dir("midfill", appauthor=False)) / "kv"


def resolve_model(model: str) -> str:
    """The model's name as language servers and cores agree on it: folders by their absolute path."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if model != BUNDLED_MODEL and folder.is_dir() else model


def address_file(folder: Path, model: str) -> Path:
    """The file that holds the address of the core that serves `model`, a name that has been resolved."""
    key = hashlib.sha256(model.encode()).hexdigest()[:16]
    return folder / f"core-{key}.json"


def read_address(path: Path) -> CoreAddress | None:
    """The address in the file, or None where there is none; BadInput where it is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(text)
        return CoreAddress(url=str(fields["url"]), pid=int(fields["pid"]), model=str(fields["model"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not the address of a core ({error!r}): {text[:200]!r}") from error


def write_address(path: Path, address: CoreAddress) -> None:
    """Publish the address, all at once."""
    _write_private(path, json.dumps(asdict(address)))


def read_or_make_token(folder: Path) -> str:
    """The token that connections must show: `token`, mode 0600, made on first use."""
    path = folder / "token"
    if not path.exists():
        with FileLock(path.with_suffix(".lock"), mode=0o600):  # cores of two models may start at the same time
            if not path.exists():
                _write_private(path, secrets.token_urlsafe(32))
    return _read_token(path)


def _read_token(path: Path) -> str:
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise BadInput(f"{path} can be read by others (mode {path.stat().st_mode & 0o777:o}): run chmod 600 {path}")
    token = path.read_text(encoding="ascii").strip()
    if not token:
        raise BadInput(f"{path} is empty: remove it, and a new token will be made")
    return token


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
