"""Decides which documents stay out of prompts: secrets, ignored files, and kinds of documents that hold other data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lsp_server.editing.file_uris import split_uri, without_query
from lsp_server.exclusion.folder_rules import FolderRules
from lsp_server.exclusion.ignore_files import IgnoreFiles
from lsp_server.exclusion.secret_files import LIST_VERSION, secret_reason
from lsp_server.exclusion.verdict import Verdict

# Schemes of documents that users write. Documents of other schemes may hold anything: logs (output:), old revisions
# (git:), an editor's own settings.
_HERE = frozenset({"file", "untitled", "buffer", "inmemory", "vscode-notebook-cell"})
# Those whose paths name no place on this machine's disks, so that its ignore files say nothing about them.
_ELSEWHERE = frozenset(
    {
        "vscode-interactive-input",  # the input of an interactive window, to a running interpreter
        "vscode-vfs",  # a repository on a host such as GitHub, opened without a clone
        "vsls",  # a guest of Live Share
        "octo",  # octo.nvim: issues, reviews and comments on GitHub
        "ftp",  # Vim's netrw: files on another machine
        "rsync",
        "scp",
        "sftp",
        "zipfile",  # Vim's zip and tar plugins: files in an archive
        "tarfile",
    }
)


class Exclusion:
    """Gives the verdict about a document from its URI; it reads the disk, so never call it in an event loop.

    Ignore files are read again after `recheck_s` seconds.

    `folders` are the URIs of the workspace folders. All rules apply to a document with a path, saved or not; only the
    list of secrets applies to one with a mere name (`untitled:Untitled-1`) or elsewhere (`scp://host/a.py`). The rules
    check the path as the editor gives it, the path with links resolved, and the path before a `?` or `#` that the
    editor did not encode. A document is excluded if the rules cannot be checked.
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
        if scheme not in _HERE | _ELSEWHERE:
            return Verdict(f"the scheme {scheme!r} is none of those that midfill knows documents of users by", "other")
        if "\0" in path:
            return Verdict("its path contains a NUL character", "other")
        paths = dict.fromkeys((path, split_uri(without_query(uri)).path))
        found = [verdict for path in paths for verdict in self._verdicts_on(path, is_here=scheme in _HERE)]
        return min(found, key=lambda verdict: verdict.cause == "gitignore", default=None)

    def rules_of(self, folder: Path) -> FolderExclusion:
        """The verdicts about what lies in a folder, which is given without links; OSError or ValueError as above."""
        rules = self._ignored.rules_of(folder)
        return FolderExclusion(rules, tuple(LIST_VERSION + each for each in rules.admissions))

    def _verdicts_on(self, path: str, *, is_here: bool) -> Iterator[Verdict]:
        try:
            if not is_here or not is_usable(path):
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


@dataclass(frozen=True, slots=True)
class FolderExclusion:
    """The verdicts about files and folders in one folder, for a walk that follows no links.

    `admission` gives a value for a file that may be used, None for another. As long as it is one of `admissions`, the
    verdict need not be asked for again: neither the ignore files nor the list of secrets have changed.
    """

    rules: FolderRules
    admissions: tuple[bytes, ...]

    def admits_folder(self, name: str) -> bool:
        """Whether a file in the folder of this name may be used."""
        return self.rules.verdict(name, is_folder=True) is None

    def admission(self, name: str) -> bytes | None:
        if secret_reason((self.rules.folder / name).as_posix()) is not None:
            return None
        admission = self.rules.admission(name)
        return None if admission is None else LIST_VERSION + admission


def is_usable(path: str) -> bool:
    """Whether the path names a place on this machine's disks: it is not empty, nor a path of another system."""
    return Path(path).is_absolute() and "\0" not in path
