"""Staged changes in a commit message: real repositories, exclusion rules, and what git must not run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from lsp_server.documents.documents import Document, Position
from lsp_server.suggesting.open_documents import EditorWorkspace
from protocol.messages import Snippet
from protocol.settings import Settings
from tests.lsp_server.exclusion.test_git import ENVIRONMENT

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, env=ENVIRONMENT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


def stage(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "--force", *files)


def message(uri: str, language_id: str = "git-commit") -> Document:
    return Document.from_text(uri, language_id, 1, "\n# Please enter the commit message\n")


async def shown(workspace: EditorWorkspace, document: Document) -> Sequence[Snippet]:
    """The snippets of the first prompt of this document, opened anew."""
    start = Position(0, 0)
    await workspace.gather(document, start, Settings())
    return workspace.planner(document, Settings()).plan(start).prompt.context


async def test_the_message_sees_what_is_staged_and_nothing_else(folder: Path) -> None:
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    document = message((folder / ".git/COMMIT_EDITMSG").as_uri())
    stage(folder, {"a.py": "one = 1\ntwo = 22\nthree = 3\n", "new file.py": "x = 1\r\n"})
    (folder / "a.py").write_text("not staged\n")
    staged = Snippet("a.py", " one = 1\n-two = 2\n+two = 22\n three = 3\n")
    assert set(await shown(workspace, document)) == {staged, Snippet("new file.py", "+x = 1\n")}
    stage(folder, {"a.py": "one = 11\ntwo = 2\nthree = 3\n"})
    workspace.pool.closed(document.uri)
    assert staged not in workspace.planner(document, Settings()).plan(Position(0, 0)).prompt.context
    assert Snippet("a.py", "-one = 1\n+one = 11\n two = 2\n") in await shown(workspace, document)
    assert await shown(workspace, message((folder / "other.md").as_uri(), "markdown")) == ()


async def test_excluded_files_stay_out(folder: Path) -> None:
    files = {"a.py": "", "b.py": "hidden\n", ".env": "KEY=hidden\n", ".midfillignore": "b.py\n"}
    stage(folder, files)
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    snippets = await shown(workspace, message((folder / ".git/COMMIT_EDITMSG").as_uri()))
    assert {each.path for each in snippets} == {"a.py", ".midfillignore"}


async def test_linked_work_trees_and_the_input_of_vs_code(folder: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(folder, "worktree", "add", "--quiet", str(tree))
    stage(tree, {"tree.py": "x = 1\n"})
    workspace = EditorWorkspace.of_folders([tree.as_uri()])
    in_tree = message((folder / ".git/worktrees/tree/COMMIT_EDITMSG").as_uri())
    box, plain, elsewhere = (
        message(f"vscode-scm:git/scm0/input?{query}", "scminput")
        for query in (scm(tree.as_uri()), unquote(scm(tree.as_uri())), scm(f"vscode-vfs://github{tree.as_posix()}"))
    )
    for document in (in_tree, box, plain):
        assert await shown(workspace, document) == (Snippet("tree.py", "+x = 1\n"),)
    assert await shown(workspace, elsewhere) == ()
    await workspace.verdicts.look([box.uri])
    assert workspace.verdicts.own(box.uri) is None


def scm(root: str) -> str:
    """The query of the input's URI as VS Code writes it: `rootUri%3Dfile%253A%252F%252F%252Fhome%252Fa`."""
    return quote("rootUri=" + quote(root, safe=""), safe="")


async def test_the_index_of_a_commit_of_all_counts_while_it_is_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    git(folder, "worktree", "add", "--quiet", str(tree))
    for root, own in ((folder, folder / ".git"), (tree, folder / ".git/worktrees/tree")):
        document = message((own / "COMMIT_EDITMSG").as_uri())
        before = (own / "index").read_bytes()
        stage(root, {"a.py": "one = 1\n"})
        (own / "index").rename(own / "index.lock")
        (own / "index").write_bytes(before)
        for name in (str(own / "index.lock"), os.path.relpath(own / "index.lock", root)):
            monkeypatch.setenv("GIT_INDEX_FILE", name)
            workspace = EditorWorkspace.of_folders([root.as_uri()])
            assert await shown(workspace, document) == (Snippet("a.py", " one = 1\n-two = 2\n-three = 3\n"),)
        (own / "index.lock").unlink()
        assert await shown(EditorWorkspace.of_folders([root.as_uri()]), document) == ()


async def test_git_runs_no_program_of_the_repository(folder: Path) -> None:
    trap = folder / "ran"
    for key in ("diff.external", "diff.trap.textconv", "diff.trap.command", "core.fsmonitor"):
        git(folder, "config", key, f"touch '{trap}'; true")
    git(folder, "config", "diff.noprefix", "true")
    (folder / ".git/info/attributes").write_text("*.py diff=trap\n")
    stage(folder, {"a.py": "x\n"})
    trap.unlink(missing_ok=True)
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    snippets = await shown(workspace, message((folder / ".git/COMMIT_EDITMSG").as_uri()))
    assert [each.path for each in snippets] == ["a.py"]
    assert not trap.exists()


async def test_submodules_stay_out_and_run_nothing(folder: Path, tmp_path: Path) -> None:
    library, trap = tmp_path / "library", tmp_path / "ran"
    shutil.copytree(folder, library)
    git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub")
    git(folder, "commit", "--quiet", "--message=second")
    stage(folder / "sub", {".env": "KEY=hidden\n"})
    git(folder / "sub", "commit", "--quiet", "--message=third")
    stage(folder, {"a.py": "x\n"})
    git(folder, "add", "sub")
    git(folder, "config", "diff.submodule", "diff")
    for external in (None, f"touch '{trap}'; true"):
        if external is not None:
            git(folder / "sub", "config", "diff.external", external)
        workspace = EditorWorkspace.of_folders([folder.as_uri()])
        snippets = await shown(workspace, message((folder / ".git/COMMIT_EDITMSG").as_uri()))
        assert [each.path for each in snippets] == ["a.py"]
        assert "hidden" not in snippets[0].text
    assert not trap.exists()


async def test_git_fetches_nothing(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    stage(folder, {"a.py": "x\n"})
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(folder),
        "remote.origin.uploadpack": f"touch '{trap}'; false",
    }.items():
        git(folder, "config", key, value)
    name = subprocess.check_output(["git", "rev-parse", "HEAD:a.py"], cwd=folder, text=True).strip()
    (folder / ".git/objects" / name[:2] / name[2:]).unlink()
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    assert await shown(workspace, message((folder / ".git/COMMIT_EDITMSG").as_uri())) == ()
    assert not trap.exists()


async def test_a_large_commit_shows_a_part_of_many_files(folder: Path) -> None:
    stage(folder, {f"f{number}.py": f"line of {number}\n" * 3000 for number in range(30)})
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    snippets = await shown(workspace, message((folder / ".git/COMMIT_EDITMSG").as_uri()))
    assert len(snippets) >= 5
    assert all(len(each.path) + len(each.text) <= 250 and each.text.endswith("\n") for each in snippets)
    assert await shown(workspace, message((folder / "gone/.git/COMMIT_EDITMSG").as_uri())) == ()
