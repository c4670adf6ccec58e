"""The exclusion of documents from prompts: secrets, ignored files, foreign kinds; decided in a thread, remembered."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lsp_server.documents.positions import split_uri, without_query
from lsp_server.exclusion.ignore_files import FolderRules, IgnoreFiles, Verdict
from lsp_server.exclusion.secret_files import LIST_VERSION, secret_reason

# Schemes of documents that users write. Documents of other schemes may hold anything: logs (output:), old revisions
# (git:), an editor's own settings.
_HERE = frozenset({"file", "untitled", "buffer", "inmemory", "vscode-notebook-cell"})
# Those whose paths name no place on this machine's disks, so that its ignore files say nothing about them.
_ELSEWHERE = frozenset(
    {
        "vscode-interactive-input",  # the input of an interactive window, to a running interpreter
        "vscode-scm",  # the message of a commit in VS Code
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
        if not _is_encodable(path):
            return Verdict("its path contains a NUL character or half of a surrogate pair", "other")
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
    return Path(path).is_absolute() and _is_encodable(path)


def _is_encodable(path: str) -> bool:
    """Whether the system takes the path; lone surrogates that stand for bytes of a name are encodable."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


_KEEP_SECONDS = 2.0
_MOST_KNOWN = 4096
_UNKNOWN = Verdict("the ignore files have not been checked yet", "unchecked")


@dataclass(frozen=True, slots=True)
class _Known:
    checked: float  # the time of the check
    verdict: Verdict | None
    prompts: int  # which prompts the text stays out of: 0 none, 1 those of other documents, 2 all


class Verdicts:
    """Remembers the verdict about each document; an unchecked document counts as excluded.

    A verdict holds for `keep_s` seconds; after half of them it is renewed in the background if its document is in use.
    """

    def __init__(self, rules: Exclusion, now: Callable[[], float] = time.monotonic, keep_s: float = _KEEP_SECONDS) -> None:
        self._rules, self._now, self._keep_s = rules, now, keep_s
        self._known: dict[str, _Known] = {}  # by URI, the oldest check first
        self._excluded: dict[str, Verdict] = {}  # newly excluded since `take_excluded`, by URI
        self._ignored_are_off = False
        self._allowed: set[str] = set()  # URIs that the user allows in spite of their verdict
        self._looking: asyncio.Task[None] | None = None

    def is_excluded(self, uri: str) -> bool:
        """Whether nothing of the document may enter another document's prompt, by the last check."""
        known = self._known.get(uri)
        return known is None or known.verdict is not None

    def own(self, uri: str) -> Verdict | None:
        """The verdict that keeps the document out of its own prompts too, by the last check; None if it may enter."""
        known = self._known.get(uri) or _Known(0.0, _UNKNOWN, self._prompts(uri, _UNKNOWN))
        return known.verdict if known.prompts == 2 else None

    def use(self, *, ignored_are_off: bool) -> None:
        """Decide whether files that git ignores stay out of their own prompts too."""
        self._ignored_are_off = ignored_are_off
        self._decide_again()

    def allow(self, uri: str, *, allowed: bool = True) -> None:
        """Let a document into its own prompts in spite of its verdict, or no longer; never into those of others."""
        if allowed:
            self._allowed.add(uri)
        else:
            self._allowed.discard(uri)
        self._decide_again()

    def is_allowed(self, uri: str) -> bool:
        return uri in self._allowed

    def inherit(self, earlier: Verdicts) -> None:
        """Take over the user's decisions."""
        self._ignored_are_off, self._allowed = earlier._ignored_are_off, earlier._allowed

    async def look(self, uris: Iterable[str], more: Iterable[str] = ()) -> None:
        """Return when the verdicts about `uris` are recent; a check that this needs includes `more`."""
        while self._is_any_older(uris, self._keep_s):
            looking = self._looking or self._start(uris, more)
            await asyncio.wait([looking])
            looking.result()

    def renew(self, uris: Iterable[str], more: Iterable[str] = ()) -> None:
        """Check in the background, so that the next `look` need not wait."""
        if self._looking is None and self._is_any_older(uris, self._keep_s / 2):
            self._start(uris, more)

    def take_excluded(self) -> dict[str, Verdict]:
        """The documents newly found to be excluded, or from more prompts, since the last call: verdicts by URI."""
        taken, self._excluded = self._excluded, {}
        return taken

    def _is_any_older(self, uris: Iterable[str], seconds: float) -> bool:
        oldest = self._now() - seconds
        for uri in uris:
            known = self._known.get(uri)
            if known is None or known.checked <= oldest:
                return True
        return False

    def _start(self, uris: Iterable[str], more: Iterable[str]) -> asyncio.Task[None]:
        wanted = [uri for uri in dict.fromkeys((*uris, *more)) if self._is_any_older((uri,), self._keep_s / 2)]
        self._looking = asyncio.create_task(self._look(wanted))
        return self._looking

    async def _look(self, uris: Iterable[str]) -> None:
        try:
            found = await asyncio.to_thread(lambda: {uri: self._rules.verdict(uri) for uri in uris})
        finally:
            self._looking = None
        for uri, verdict in found.items():
            self._decide(uri, self._now(), verdict)
        for uri in list(self._known)[:-_MOST_KNOWN]:
            del self._known[uri]

    def _decide_again(self) -> None:
        for uri, known in list(self._known.items()):
            self._decide(uri, known.checked, known.verdict)

    def _decide(self, uri: str, checked: float, verdict: Verdict | None) -> None:
        before, prompts = self._known.pop(uri, None), self._prompts(uri, verdict)
        if verdict is not None and prompts > (before.prompts if before is not None else 0):
            self._excluded[uri] = verdict
        self._known[uri] = _Known(checked, verdict, prompts)

    def _prompts(self, uri: str, verdict: Verdict | None) -> int:
        if verdict is None:
            return 0
        others_alone = uri in self._allowed or (verdict.cause == "gitignore" and not self._ignored_are_off)
        return 1 if others_alone else 2
