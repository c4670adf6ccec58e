"""Decides which documents stay out of prompts: secrets, ignored files, and kinds of documents that hold other data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lsp_server.editing.file_uris import split_uri, without_query
from lsp_server.exclusion.ignore_files import IgnoreFiles
from lsp_server.exclusion.secret_files import secret_reason
from lsp_server.exclusion.verdict import Verdict

# Schemes of documents that users write: files, scratch buffers, notebook cells. Documents of other schemes may hold
# anything: logs (output:), old revisions (git:), an editor's own settings.
_WRITTEN = frozenset({"file", "untitled", "buffer", "inmemory", "vscode-notebook-cell"})


class Exclusion:
    """Gives the verdict about a document from its URI; it reads the disk, so never call it in an event loop.

    Ignore files are read again after `recheck_s` seconds.

    `folders` are the URIs of the workspace folders. All rules apply to a document with a path, saved or not; only the
    list of secrets applies to one with a mere name (`untitled:Untitled-1`). The rules check the path as the editor
    gives it, the path with links resolved, and the path before a `?` or `#` that the editor did not encode. A
    document is excluded if the rules cannot be checked.
    """

    def __init__(self, folders: Iterable[str], now: Callable[[], float], recheck_s: float = 2.0) -> None:
        paths = [Path(os.path.normpath(path)) for path in (split_uri(uri).path for uri in folders) if is_usable(path)]
        real_paths = [Path(os.path.realpath(path)) for path in paths]
        self._ignored = IgnoreFiles(list(dict.fromkeys(paths + real_paths)), now, recheck_s)

    def reason(self, uri: str) -> str | None:
        """Which rule of which file keeps the document out of others' prompts; None if it may be used."""
        verdict = self.verdict(uri)
        return None if verdict is None else verdict.rule

    def verdict(self, uri: str) -> Verdict | None:
        """The strictest verdict about the document; None if it may be used everywhere."""
        scheme, path = split_uri(uri)
        if scheme not in _WRITTEN:
            return Verdict(f"documents with the scheme {scheme!r} are not edited by hand", "other")
        if "\0" in path:
            return Verdict("its path contains a NUL character", "other")
        paths = dict.fromkeys((path, split_uri(without_query(uri)).path))
        found = [verdict for path in paths for verdict in self._verdicts_on(path)]
        return min(found, key=lambda verdict: verdict.cause == "gitignore", default=None)

    def _verdicts_on(self, path: str) -> Iterator[Verdict]:
        try:
            if not is_usable(path):
                if (secret := secret_reason(path)) is not None:
                    yield Verdict(secret, "secret")
                return
            for place in dict.fromkeys((Path(os.path.normpath(path)), Path(os.path.realpath(path)))):
                if (secret := secret_reason(place.as_posix())) is not None:
                    yield Verdict(secret, "secret")
                elif (ignored := self._ignored.verdict(place)) is not None:
                    yield ignored
        except (OSError, ValueError) as error:
            yield Verdict(f"midfill cannot check the ignore files: {error}", "other")


def is_usable(path: str) -> bool:
    """Whether the path names a place on this machine's disks: it is not empty, nor a path of another system."""
    return Path(path).is_absolute() and "\0" not in path
