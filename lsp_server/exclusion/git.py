"""Git as a program: asks it about repositories that may be hostile, and which files they track."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path, PurePosixPath
from threading import Timer

_MOST_SECONDS = 5.0
_MOST_BYTES = 1 << 23  # of the names that are read: about 150,000 files
# Git runs no program that the repository names, writes nothing and fetches nothing.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # git before 2.45 does not know the variable above
    "GIT_TERMINAL_PROMPT": "0",
}


def git_output(arguments: Sequence[str], root: Path, most_bytes: int, environment: Mapping[str, str] | None = None) -> bytes:
    """The beginning of what git prints in this folder; empty where it is not installed, fails, or takes too long."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        git = subprocess.Popen(
            (*_GIT, *arguments),
            cwd=root,
            env={**own, **_ENVIRONMENT, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError):
        return b""
    late = Timer(_MOST_SECONDS, git.kill)
    late.start()
    try:
        with git:
            assert git.stdout is not None, "it is a pipe"
            text = git.stdout.read(most_bytes)
            is_cut = len(text) == most_bytes
            if is_cut:
                git.kill()
    finally:
        late.cancel()
    return text if is_cut or git.returncode == 0 else b""


@dataclass(frozen=True, slots=True)
class Tracked:
    """The files that a repository tracks, by their paths below its root with `/`, and the folders that hold them: git
    ignores none of them.
    """

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()


def tracked_in(root: Path) -> Tracked | None:
    """What the index of the repository at `root` says, whatever its rules; None where git says nothing."""
    said = git_output(("ls-files", "-z", "--cached"), root, _MOST_BYTES)
    if not said:
        return None
    files = frozenset(said.decode("utf-8", "surrogateescape").split("\0")[:-1])
    parents = {path.rpartition("/")[0] for path in files}
    return Tracked(files, frozenset(folder for parent in parents for folder in _with_outer(parent)))


def _with_outer(folder: str) -> list[str]:
    return list(accumulate(PurePosixPath(folder).parts, "{}/{}".format))
