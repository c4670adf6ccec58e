"""The runtime folder, where language servers find cores, and the identity of a core: the settings that distinguish it.

A core holds `core-KEY.lock` while it runs, with KEY from its name, and writes `core-KEY.json` once it listens: its
address, its settings and its protocol version. It removes the address when it exits; the system releases the lock even
if the core is killed. `core-KEY.stopped` keeps the clients that ran when the user stopped the core from
starting one of this name. Only the user can read the folder's files.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec
import platformdirs
from filelock import FileLock, Timeout

from protocol.errors import BadInput
from protocol.settings import BUNDLED_MODEL, CORE_SETTINGS, LOCAL_ENGINE, OWN_MODELS, SETTINGS, Settings, local_path

SettingValue = str | int | bool  # cores of other versions publish bool

# A core's lifetime changes neither its answers nor what it keeps meanwhile. The model identifies the core.
_LIFETIMES = frozenset({"unload_after_s", "exit_after_s"})
_KEEPING = frozenset({"engine_key", "engine_session_header", "threads", "slots", "store_mb", "disk_mb"})
_DIGEST = "engine_key_digest"  # of the key, which the address file does not have

IDENTITY_SETTINGS = (*(name for name in CORE_SETTINGS if name not in {"model", *_LIFETIMES}), "engine_key")
"""The settings, besides the model, that change what a core computes or keeps."""

ANSWER_SETTINGS = tuple(name for name in IDENTITY_SETTINGS if name not in _KEEPING)
"""The identity settings that can change the text of a completion."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting whose value in a running core differs from the requested one."""

    name: str
    running: object
    asked: object


def core_settings(settings: Settings) -> dict[str, SettingValue]:
    """The settings that a core started with `settings` publishes beside its model; of a secret only a digest."""
    published = {name: getattr(settings, name) for name in CORE_SETTINGS if name != "model"}
    return published | ({_DIGEST: _digest(settings.engine_key)} if settings.engine_key else {})


def has_key_of(running: Mapping[str, object], settings: Settings) -> bool:
    """Whether `settings` have the engine's key that the running core was started with, if there is one."""
    return running.get(_DIGEST) in (None, _digest(settings.engine_key))


def differences(
    running: Mapping[str, object], asked: Settings, names: Collection[str] = IDENTITY_SETTINGS
) -> tuple[Difference, ...]:
    """The settings among `names` whose values differ; an unpublished one counts as its default.

    Settings without the engine's key ask for none in particular.
    """
    shown = [name for name in names if not SETTINGS[name].secret]
    pairs = ((name, running.get(name, SETTINGS[name].default), getattr(asked, name)) for name in shown)
    found = [Difference(name, value, wanted) for name, value, wanted in pairs if value != wanted]
    if "engine_key" in names and asked.engine_key and running.get(_DIGEST) != _digest(asked.engine_key):
        found.append(Difference("engine_key", "another key" if _DIGEST in running else "none", "yours"))
    return tuple(found)


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()[:16]


def describe(found: Iterable[Difference], named: Callable[[str], str]) -> str:
    """The differences in one line, as `healing = auto (requested: on)`; `named` spells a setting's name."""
    return ", ".join(f"{named(one.name)} = {one.running} (requested: {one.asked})" for one in found)


_LOCK_PATIENCE_S = 1.0  # `is_held` holds the lock for an instant


class CoreAddress(msgspec.Struct, frozen=True):
    """A listening core. Files of older versions lack the last three fields."""

    url: str  # ws://127.0.0.1:PORT/ws
    pid: int
    model: str  # its `core_name`
    settings: dict[str, SettingValue] = {}  # its `protocol.rendezvous.core_settings`
    protocol_version: int = 1
    replaceable: bool = True  # whether a core with other settings may replace it; not if started by hand


class StoppedCore(msgspec.Struct, frozen=True):
    """A core that the user has stopped: no client of then starts one of its name until the user asks for one."""

    by: str  # the program that stopped it, for users
    address: CoreAddress | None = None  # where it ran, if it ran
    at: float = 0.0  # when, in seconds since the epoch; clients that begin later start a core


def runtime_folder() -> Path:
    """The folder of this user's cores, created if missing with mode 0700; `MIDFILL_RUNTIME_DIR` overrides it.

    Raises BadInput if it cannot be created, belongs to another user, or is writable by others.
    """
    override = os.environ.get("MIDFILL_RUNTIME_DIR")
    if override:
        folder = Path(override)
    elif sys.platform == "linux" and not os.environ.get("XDG_RUNTIME_DIR"):
        # Without a login session there is no XDG runtime folder, and a shared /tmp is unsafe for a token.
        folder = Path(platformdirs.user_state_dir("midfill", appauthor=False)) / "run"
    else:
        folder = Path(platformdirs.user_runtime_dir("midfill", appauthor=False))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)
    except OSError as error:
        raise BadInput(
            f"the runtime folder {folder} cannot be created: {error.strerror}. Choose another with MIDFILL_RUNTIME_DIR"
        ) from error
    return folder


def _check_private(folder: Path) -> None:
    if os.name != "posix":
        return
    found = folder.stat()
    if found.st_uid != os.getuid():
        raise BadInput(
            f"the runtime folder {folder} belongs to the user with the id {found.st_uid}: choose one of your "
            "own with MIDFILL_RUNTIME_DIR"
        )
    if found.st_mode & 0o022:
        raise BadInput(
            f"other users can write to the runtime folder {folder} (mode {found.st_mode & 0o777:o}): run chmod"
            f" 700 {folder}, or choose another with MIDFILL_RUNTIME_DIR"
        )


def cache_folder() -> Path:
    """The folder for KV on disk, not created here; `MIDFILL_CACHE_DIR` overrides it."""
    override = os.environ.get("MIDFILL_CACHE_DIR")
    return Path(override) if override else Path(platformdirs.user_cache_dir("midfill", appauthor=False)) / "kv"


def resolve_model(model: str) -> str:
    """The model's name as language servers and cores share it: folders and files by their absolute path."""
    path = local_path(model) if model not in OWN_MODELS else None
    return model if path is None else str(path)


def resolve_engine(engine: str) -> str:
    """The setting `engine` as language servers and cores share it: programs by their absolute path."""
    kind, _, place = engine.partition("=")
    path = local_path(place) if "://" not in place else None
    return engine if path is None or not path.is_file() else f"{kind}={path}"


def core_name(model: str, engine: str = LOCAL_ENGINE) -> str:
    """The name of the core that serves a resolved `model` with a resolved `engine`.

    With another engine than the local one, the bundled model stands for the model that the engine has.
    """
    if engine == LOCAL_ENGINE:
        return model
    return engine if model == BUNDLED_MODEL else f"{model} via {engine}"


def model_of_core(name: str, engine: str = LOCAL_ENGINE) -> str:
    """The model in a `core_name`."""
    return BUNDLED_MODEL if name == engine else name.removesuffix(f" via {engine}")


def address_file(folder: Path, name: str) -> Path:
    """The file with the address of the core of this `core_name`."""
    key = hashlib.sha256(name.encode()).hexdigest()[:16]
    return folder / f"core-{key}.json"


def read_address(path: Path) -> CoreAddress | None:
    """The address in the file; None if the file is missing, BadInput if its content is invalid."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(text, type=CoreAddress)
    except ValueError as error:
        raise BadInput(f"{path} is not the address of a core ({error}): {text[:200]!r}") from error


def write_address(path: Path, address: CoreAddress) -> None:
    """Publish the address atomically, which ends a stop; BadInput if the folder is not writable."""
    end_stop(path)
    write_private(path, msgspec.json.encode(address).decode())


def write_stop(address_file: Path, stopped: StoppedCore) -> None:
    """Keep the clients of now from starting this core until `end_stop`; BadInput if the folder is not writable."""
    write_private(_stop_file(address_file), msgspec.json.encode(stopped).decode())


def read_stop(address_file: Path) -> StoppedCore | None:
    """The core of this address file that was stopped; None if none was, or something else is in the file's place."""
    try:
        return msgspec.json.decode(_stop_file(address_file).read_bytes(), type=StoppedCore)
    except (OSError, ValueError):
        return None


def end_stop(address_file: Path) -> None:
    """Let clients start this core again; BadInput if the folder is not writable."""
    path = _stop_file(address_file)
    with naming(path):
        path.unlink(missing_ok=True)


def _stop_file(address_file: Path) -> Path:
    return address_file.with_suffix(".stopped")


def is_held(address_file: Path) -> bool:
    """Whether the core of this address file runs or starts, judged by its lock."""
    with hold(address_file, patience_s=0) as is_ours:
        return not is_ours


@contextmanager
def hold(address_file: Path, patience_s: float = _LOCK_PATIENCE_S) -> Iterator[bool]:
    """Hold the lock of this address file's core; yields False if another core has it."""
    lock = FileLock(address_file.with_suffix(".lock"), mode=0o600)
    try:
        with naming(lock.lock_file):
            lock.acquire(timeout=patience_s)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def read_or_make_token(folder: Path) -> str:
    """The token that connections must present: file `token`, mode 0600, created on first use.

    Raises BadInput if it cannot be created or read, is no token, or is readable by others.
    """
    path = folder / "token"
    with naming(path):
        if not path.exists():
            # Cores of two models may start at the same time.
            with FileLock(path.with_suffix(".lock"), mode=0o600):
                if not path.exists():
                    write_private(path, secrets.token_urlsafe(32))
        return _read_token(path)


def _read_token(path: Path) -> str:
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise BadInput(f"other users can read {path} (mode {path.stat().st_mode & 0o777:o}): run chmod 600 {path}")
    token = path.read_bytes().strip()
    if not token:
        raise BadInput(f"{path} is empty: remove it, and midfill creates a new token")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise BadInput(
            f"{path} holds no token, since its bytes are not printable ASCII: remove it, and midfill creates a new token"
        )
    return token.decode("ascii")


def write_private(path: Path, text: str) -> None:
    """Replace the file atomically, with mode 0600; BadInput, with its name, if that fails."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with naming(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Turn an OSError into BadInput that names the file."""
    try:
        yield
    except Timeout:
        raise  # Timeout is an OSError too
    except OSError as error:
        raise BadInput(f"{path} cannot be used: {error.strerror or error}") from error
