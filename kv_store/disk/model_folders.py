"""Manages the folders of the disk tier, one per model: their locks, our files in them, and their removal."""

from __future__ import annotations

import itertools
import logging
import os
import re
import stat
from pathlib import Path

from filelock import FileLock, Timeout

from kv_store.disk.page_index import INDEX_NAME, PageIndex
from kv_store.errors import BadFileError, FolderInUseError, StoreError
from kv_store.interface import document_of

LOCK_NAME = "lock"
PAGE_NAME = re.compile(r"[0-9a-f]{8}\.safetensors")
OUR_NAME = re.compile(r"[0-9a-f]{8}\.(safetensors|tmp)|index\.(json|tmp)|" + re.escape(INDEX_NAME) + r"(-\w+)?")
FOLDER_NAME = re.compile(r"[0-9a-f]{16}")

log = logging.getLogger(__name__)


def purge_saved(root: Path, session: str) -> None:
    """Remove pages that only the session's document used from the folders of all models that no process has open.

    Empties a folder whose index is unusable. If a removal fails, goes on with the other folders, then raises OSError.
    """
    failures = []
    for folder in model_folders(root):
        try:
            _purge(folder, document_of(session))
        except FolderInUseError:  # that process purges it
            pass
        except OSError as error:
            failures.append(f"{folder}: {error}")
    if failures:
        raise OSError(f"what is saved of a document could not be removed: {'; '.join(failures)}")


def _purge(folder: Path, document: str) -> None:
    try:
        lock, index = open_folder(folder)
    except BadFileError:
        empty(folder)
        if folder.exists() and (left := our_files(folder, OUR_NAME)):
            raise OSError(f"{left[0].name} cannot be removed") from None
        return
    try:
        for number in index.purge(document):
            (folder / page_name(number)).unlink(missing_ok=True)
    finally:
        index.close()
        lock.release()


def page_name(number: int) -> str:
    """The name of a page's file."""
    return f"{number:08x}.safetensors"


def remove_other_models(root: Path, ours: Path | None = None) -> list[str]:
    """Remove what was saved with other fingerprints, unless in use; returns the reasons, naming the folders.

    Without a folder of `ours`, removes all that no process has open.

    A purge must reach every page, and the budget covers everything on disk.
    """
    removed = []
    for folder in model_folders(root):
        if folder == ours:
            continue
        try:
            lock = acquire(folder)
            remove_files(folder)
            lock.release()
            empty(folder)
        except (StoreError, OSError) as error:
            log.info("not removed: %s", error)
        else:
            removed.append(f"{folder}: saved with other weights, tokenizer, dtype or RoPE settings")
    return removed


def model_folders(root: Path) -> list[Path]:
    """The folders of all models."""
    paths = root.iterdir() if root.is_dir() else ()
    return [path for path in paths if FOLDER_NAME.fullmatch(path.name) and (path / LOCK_NAME).is_file()]


def open_folder(folder: Path) -> tuple[FileLock, PageIndex]:
    """The lock on a folder, which ends with the process, and the index in it; raises the errors of both."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink():
        raise BadFileError(folder, "a symbolic link")
    folder.chmod(0o700)
    lock = acquire(folder)
    try:
        return lock, PageIndex(folder / INDEX_NAME)
    except BaseException:
        lock.release()
        raise


def acquire(folder: Path) -> FileLock:
    """The lock on a folder.

    Raises FolderInUseError if another process has it, BadFileError if it is no regular file, OSError if it cannot be
    opened.
    """
    path = folder / LOCK_NAME
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise BadFileError(path, "not a regular file")
    lock = FileLock(path, timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise FolderInUseError(f"{folder}: another process keeps its pages here") from error
    return lock


def set_aside(folder: Path) -> None:
    """Rename an unusable folder and remove the KV in it, which a purge could no longer reach."""
    names = (f"{folder.name}.unusable{number or ''}" for number in itertools.count())
    aside = next(path for name in names if not os.path.lexists(path := folder.with_name(name)))
    folder.rename(aside)
    if aside.is_dir() and not aside.is_symlink():
        empty(aside)


def empty(folder: Path) -> None:
    """Remove our own files and the lock, and the folder if nothing else is in it."""
    remove_files(folder)
    if (folder / LOCK_NAME).is_file():
        remove_file(folder / LOCK_NAME)
    if not any(folder.iterdir()):
        folder.rmdir()


def remove_files(folder: Path) -> None:
    """Remove our own files, but not the lock."""
    for path in our_files(folder, OUR_NAME):
        if path.is_file() or path.is_symlink():
            remove_file(path)


def our_files(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """The files with such a name."""
    return [path for path in folder.iterdir() if name.fullmatch(path.name)]


def remove_file(path: Path) -> None:
    """Remove a file; logs a failure."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # a folder in its place, or a read-only disk
        log.warning("%s cannot be removed: %s", path, error.strerror)
