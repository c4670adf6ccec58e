"""Decides which folders may be indexed: projects on this machine's own disks, not a home folder or a whole disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

PROJECT_MARKS = (
    *(".git", ".hg", ".svn", ".jj"),
    *("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"),
    *("package.json", "tsconfig.json", "jsconfig.json", "deno.json"),
    *("go.mod", "go.work", "Cargo.toml", "Makefile", "CMakeLists.txt"),
    ".midfillignore",
)
"""One of these in a folder, or in one around it, says that the folder belongs to a project."""

# File systems of other machines, as Linux, macOS and Windows call them. Those that share folders of a host with a
# virtual machine or a container on it are not here.
_REMOTE_NAMES = (
    "nfs nfs3 nfs4 cifs smb smb2 smb3 smbfs afpfs webdav davfs 9p afs ceph glusterfs lustre ncpfs sshfs "
    "fuse.sshfs fuse.rclone fuse.s3fs fuse.gcsfuse fuse.davfs2 fuse.glusterfs fuse.ceph osxfuse macfuse"
)
_REMOTE = frozenset(_REMOTE_NAMES.split())
_REMOVABLE_OPTIONS = frozenset({"removable", "remote", "cdrom"})  # by which psutil tells drives of Windows
_REMOVABLE_PLACES = tuple(map(Path, ("/media", "/run/media", "/Volumes")))  # where desktops mount what is plugged in


class Mount(NamedTuple):
    """A mounted file system."""

    place: Path
    file_system: str
    options: str = ""


def mounts() -> Iterator[Mount]:
    """What is mounted now."""
    for each in psutil.disk_partitions(all=True):
        yield Mount(Path(each.mountpoint), each.fstype.lower(), each.opts)


def unfit(folder: Path, home: Path, mounted: Callable[[], Iterable[Mount]] = mounts) -> str | None:
    """Why the folder, which is given without links, is not indexed; None if it may be."""
    if folder.parent == folder or home.is_relative_to(folder):
        return "it is a whole disk, or holds the home folder"
    outer = (each for each in (folder, *folder.parents) if each.parent != each and not home.is_relative_to(each))
    if not any((each / mark).exists() for each in outer for mark in PROJECT_MARKS):
        return f"neither it nor a folder around it has a mark of a project, such as {PROJECT_MARKS[0]}"
    return unfit_disk(folder, mounted)


def unfit_disk(folder: Path, mounted: Callable[[], Iterable[Mount]] = mounts) -> str | None:
    """Why nothing on the folder's file system is indexed; None if it may be."""
    around = [each for each in mounted() if folder.is_relative_to(each.place)]
    mount = max(around, key=lambda each: len(each.place.parts), default=None)
    if mount is None:
        return None
    if mount.file_system in _REMOTE or not _REMOVABLE_OPTIONS.isdisjoint(mount.options.split(",")):
        return f"{mount.place} is on another machine, or removable ({mount.file_system} {mount.options})"
    if any(mount.place.is_relative_to(place) for place in _REMOVABLE_PLACES):
        return f"{mount.place} is where removable disks are mounted"
    return None
