"""Files on disk beside a document: which there are, and their texts, read again when they change."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path

from lsp_server.context.cutting import CutSnippet, FileStamp
from lsp_server.context.proposals import FileText
from lsp_server.editing.documents import split_lines
from lsp_server.editing.file_uris import split_uri
from lsp_server.exclusion.exclusion import is_usable

MAX_NEIGHBOURS = 16
_MAX_ENTRIES = 1_000  # of a folder
_MAX_BYTES = 128 * 1024
_MAX_REMEMBERED = 64


def neighbours_of(uri: str, known: Collection[str]) -> list[str]:
    """The URIs of files in the document's folder with its suffix, but for `known` ones; reads the disk.

    Those that come next to the document by name are first.
    """
    path = _path_of(uri)
    if path is None or not path.suffix:
        return []
    try:
        with os.scandir(path.parent) as entries:
            names = sorted(each.name for each in islice(entries, _MAX_ENTRIES) if each.name.endswith(path.suffix))
    except OSError:  # a document that was not saved yet, or a folder that vanished
        return []
    place = sum(name < path.name for name in names)
    nearest = sorted(range(len(names)), key=lambda index: abs(index - place))
    known_paths = {split_uri(each).path for each in known}  # editors do not encode every character that `as_uri` does
    paths = (path.parent / names[index] for index in nearest if names[index] != path.name)
    return [each.as_uri() for each in paths if each.as_posix() not in known_paths][:MAX_NEIGHBOURS]


class NeighbourTexts:
    """Reads files, and remembers the texts of those that did not change; for one thread."""

    def __init__(self) -> None:
        self._remembered: dict[str, FileText] = {}

    def read(self, uris: Iterable[str]) -> Iterator[FileText]:
        """The files that are text of at most 128 KB in UTF-8."""
        for uri in uris:
            known = self._remembered.pop(uri, None)
            stamp = _stamp(uri)
            if known is None or known.stamp != stamp:
                known = None if stamp is None else _read(uri, stamp)
            if known is not None:
                self._remembered[uri] = known
                yield known
        while len(self._remembered) > _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def gone(self, snippets: Iterable[CutSnippet]) -> frozenset[CutSnippet]:
        """Those whose files have changed since they were read, and do not contain them any more."""
        changed = [each for each in snippets if each.stamp is not None and _stamp(each.uri) != each.stamp]
        return frozenset(each for each in changed if not self._has(each))

    def _has(self, snippet: CutSnippet) -> bool:
        return any("".join(snippet.lines) in "".join(file.lines) for file in self.read((snippet.uri,)))


def _path_of(uri: str) -> Path | None:
    scheme, path = split_uri(uri)
    return Path(path) if scheme == "file" and is_usable(path) else None


def _stamp(uri: str) -> FileStamp | None:
    """The state of a regular file that is small enough; None if it is none."""
    path = _path_of(uri)
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return (
        (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_BYTES else None
    )


def _read(uri: str, stamp: FileStamp) -> FileText | None:
    path = _path_of(uri)
    if path is None:
        return None
    try:
        text = path.read_bytes()[:_MAX_BYTES].decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else FileText(uri, tuple(split_lines(text)), stamp=stamp)
