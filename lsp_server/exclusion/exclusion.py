"""Decides which documents never enter a prompt: secrets, ignored files, and kinds of documents that hold other data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from lsp_server.editing.file_uris import split_uri, without_query
from lsp_server.exclusion.ignore_files import IgnoreFiles
from lsp_server.exclusion.secret_files import SecretFiles

# Schemes of documents that users write: files, scratch buffers, notebook cells. Documents of other schemes may hold
# anything: logs (output:), old revisions (git:), an editor's own settings.
_WRITTEN = frozenset({"file", "untitled", "buffer", "inmemory", "vscode-notebook-cell"})


class Exclusion:
    """Gives the reason why a document is excluded, from its URI; it reads the disk, so never call it in an event loop.

    Ignore files are read again after `recheck_s` seconds.

    `folders` are the URIs of the workspace folders. All rules apply to a document with a path, saved or not; only the
    list of secrets applies to one with a mere name (`untitled:Untitled-1`). The rules check the path as the editor
    gives it, the path with links resolved, and the path before a `?` or `#` that the editor did not encode. A
    document is excluded if the rules cannot be checked.
    """

    def __init__(self, folders: Iterable[str], now: Callable[[], float], recheck_s: float = 2.0) -> None:
        paths = [Path(os.path.normpath(path)) for path in (split_uri(uri).path for uri in folders) if is_usable(path)]
        real_paths = [Path(os.path.realpath(path)) for path in paths]
        self._secrets = SecretFiles()
        self._ignored = IgnoreFiles(list(dict.fromkeys(paths + real_paths)), now, recheck_s)

    def reason(self, uri: str) -> str | None:
        """Which rule of which file excludes the document, for the log and the status; None if it may be used."""
        scheme, path = split_uri(uri)
        if scheme not in _WRITTEN:
            return f"documents with the scheme {scheme!r} are not edited by hand"
        if "\0" in path:
            return "its path contains a NUL character"
        paths = dict.fromkeys((path, split_uri(without_query(uri)).path))
        reasons = (self._reason_of_path(path) for path in paths)
        return next((reason for reason in reasons if reason is not None), None)

    def _reason_of_path(self, path: str) -> str | None:
        if not is_usable(path):
            return self._secrets.reason(path)
        try:
            places = dict.fromkeys((Path(os.path.normpath(path)), Path(os.path.realpath(path))))
            reasons = (self._secrets.reason(place.as_posix()) or self._ignored.reason(place) for place in places)
            return next((reason for reason in reasons if reason is not None), None)
        except (OSError, ValueError) as error:
            return f"midfill cannot check the ignore files: {error}"


def is_usable(path: str) -> bool:
    """Whether the path names a place on this machine's disks: it is not empty, nor a path of another system."""
    return Path(path).is_absolute() and "\0" not in path
