"""Converts document URIs to paths, by their text alone, without access to the disk."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

_DRIVE = re.compile(r"/?([A-Za-z]:)")
_QUERY = re.compile(r"[?#]")


class UriPath(NamedTuple):
    """A URI's scheme in lower case, and its path, decoded: `/w/a b.py`, `c:/w/a.py`, `//server/a.py`, `Untitled-1`."""

    scheme: str
    path: str


def split_uri(uri: str) -> UriPath:
    """The scheme and the path; never raises, whatever an editor sends: a text without a scheme has the scheme ""."""
    scheme, colon, rest = uri.partition(":")
    if not colon:
        return UriPath("", uri)
    scheme, authority = scheme.lower(), ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if scheme != "file":
        # A file's URI has no query or fragment: what looks like one is a name that the editor did not encode.
        rest = _QUERY.split(rest, maxsplit=1)[0]
    path = unquote(rest, errors="surrogateescape")
    if drive := _DRIVE.match(path):
        return UriPath(scheme, drive[1].lower() + path[drive.end() :].replace("\\", "/"))
    if scheme == "file" and authority not in ("", "localhost"):
        path = f"//{authority}{path}"
    return UriPath(scheme, path)


def without_query(uri: str) -> str:
    """The URI up to its query or fragment; of a file's, what may be one."""
    return _QUERY.split(uri, maxsplit=1)[0]


def shown_path(uri: str, folders: Sequence[str]) -> str:
    """How a prompt names the document: its path in the innermost workspace folder, after its name if there are several.

    `folders` are URIs. A document outside of them goes by its file name alone, so its folders stay private.
    """
    path = split_uri(uri).path
    roots = (split_uri(folder).path.rstrip("/") for folder in folders)
    root = max((root for root in roots if path.startswith(root + "/")), key=len, default=None)
    if root is None:
        return path.rpartition("/")[2]
    relative = path[len(root) + 1 :]
    return f"{root.rpartition('/')[2]}/{relative}" if len(folders) > 1 else relative
