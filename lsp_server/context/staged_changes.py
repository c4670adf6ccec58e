"""The source `staged`: what git's index changes, for a commit message."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from lsp_server.context.proposals import PromptPlace, TextProposal, rank
from lsp_server.documents.positions import split_uri
from lsp_server.exclusion.exclusion import is_usable
from lsp_server.exclusion.git import git_output

_LANGUAGES = frozenset(("git-commit", "scminput"))
_MOST_BYTES = 1 << 18  # of the diff that is read
_MOST_FILES = 16
# The code points of a file's part: several files share what all may have, and a part is cut at a line's end.
_CHARS, _MOST_CHARS, _LEAST_CHARS = 1500, 700, 250
_DIFF = (  # the user's prefixes do not count
    *("diff", "--cached", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--unified=1"),
    "--ignore-submodules=all",  # with `diff.submodule=diff`, a second git would heed the submodule's own settings
)
_NAME = re.compile(r"^(?:--- a|\+\+\+ b)/(.+?)\t?$", re.MULTILINE)


class StagedChanges:
    """Reads the repository's index for documents that are commit messages; for one thread."""

    def propose(self, place: PromptPlace) -> Sequence[TextProposal]:
        """A part of the diff of each staged file, in git's order; the URIs are those of the files."""
        found = _repository(place) if place.language_id in _LANGUAGES else None
        if found is None:
            return ()
        root, _ = found
        changes = list(_changes(_staged(*found)))[:_MOST_FILES]
        chars = max(_LEAST_CHARS, min(_MOST_CHARS, _CHARS // max(1, len(changes))))
        parts = ((name, _cut(text, chars - len(name))) for name, text in changes)
        return [
            TextProposal(place.uri_of(root / name), "staged", rank("staged", 1.0, number), 0, (), text, (0, 0))
            for number, (name, text) in enumerate(parts)
            if text
        ]


def _repository(place: PromptPlace) -> tuple[Path, Path] | None:
    """The commit's work tree and git folder: of `.git/COMMIT_EDITMSG`, of a linked tree's, or of VS Code's input."""
    scheme, path = split_uri(place.uri)
    if scheme == "vscode-scm":
        query = place.uri.partition("?")[2]
        if "rootUri=" not in query:
            query = unquote(query)  # VS Code encodes the whole query once more
        scheme, path = split_uri(unquote(query.partition("rootUri=")[2].partition("&")[0]))
        return (Path(path), Path(path) / ".git") if scheme == "file" and is_usable(path) else None
    if scheme != "file" or not is_usable(path) or Path(path).name != "COMMIT_EDITMSG":
        return None
    folder = Path(path).parent
    if folder.name == ".git":
        return folder.parent, folder
    try:
        return (folder / (folder / "gitdir").read_text(encoding="utf-8").strip()).parent, folder
    except (OSError, ValueError):
        return None


def _staged(root: Path, folder: Path) -> str:
    """The beginning of the diff; empty where git fails, or takes too long."""
    index = root / os.environ.get("GIT_INDEX_FILE", "")  # of `git commit --all`, which runs the editor
    own = {}
    try:
        if index.is_file() and index.parent.samefile(folder):  # else it is of an earlier commit, or another repository
            own["GIT_INDEX_FILE"] = str(index)
    except (OSError, ValueError):
        return ""
    return git_output(_DIFF, root, _MOST_BYTES, own).decode(errors="replace").replace("\r\n", "\n")


def _changes(diff: str) -> Iterator[tuple[str, str]]:
    """Each file's name, below the root, and its changed lines with the line above and below."""
    for part in re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]:
        head, hunks, text = part.partition("\n@@ ")
        names = _NAME.findall(head)
        if hunks and names:  # neither binary nor only a mode, and no name that git has to quote
            yield names[-1], re.sub(r"^@@ .*\n", "", "@@ " + text, flags=re.MULTILINE)


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: text.rfind("\n", 0, max(0, chars)) + 1]
