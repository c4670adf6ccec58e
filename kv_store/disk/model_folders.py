"""The folders of the disk tier, one per model: their locks, which of their files are ours, and what is removed."""

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


def purge_saved(root: Path, owner: str) -> None:
    """Remove what only the owner's document used from the folders that no process has open, whichever their model.

    A folder whose index cannot be used is emptied. Raises OSError where something cannot be removed.
    """
    for folder in model_folders(root) if root.is_dir() else ():
        try:
            lock, index = open_folder(folder)
        except FolderInUseError:  # that process has to purge
            continue
        except BadFileError:
            empty(folder)
            continue
        try:
            for number in index.purge(document_of(owner)):
                (folder / page_name(number)).unlink(missing_ok=True)
        finally:
            index.close()
            lock.release()


def page_name(number: int) -> str:
    """The name of a page's file."""
    return f"{number:08x}.safetensors"


def remove_other_models(root: Path, ours: Path) -> list[str]:
    """Remove what was saved with other fingerprints, unless in use; the reasons, naming the folders.

    A purge must reach every page, and the budget is for all that is on disk.
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
            log.info("left alone: %s", error)
        else:
            removed.append(f"{folder}: saved with other weights, tokenizer, dtype or RoPE settings")
    return removed


def model_folders(root: Path) -> list[Path]:
    """The folders of all models."""
    return [path for path in root.iterdir() if FOLDER_NAME.fullmatch(path.name) and (path / LOCK_NAME).is_file()]


def open_folder(folder: Path) -> tuple[FileLock, PageIndex]:
    """The lock on a folder, which ends with the process, and the index in it; errors as these have them."""
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
    """The lock on a folder. Raises FolderInUseError if another process has it, BadFileError if it can be none."""
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
    """Move a folder that cannot be used out of the way, without the KV in it, which could not be purged any more."""
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
    """Remove a file; where that fails, say so in the log."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # a folder in its place, or a disk that has become read-only
        log.warning("%s cannot be removed: %s", path, error.strerror)
