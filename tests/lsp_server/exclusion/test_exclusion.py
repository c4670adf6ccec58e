"""Which documents are excluded: ignore files on a real disk, links, kinds of URI, and when the disk is looked at.

Verdicts: looked at in a thread, remembered for a while, renewed before they are needed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from lsp_server.exclusion.exclusion import Exclusion, Verdicts
from lsp_server.exclusion.ignore_files import Verdict
from lsp_server.exclusion.ignore_rules import IgnoreRules
from tests.lsp_server.editor import PATIENCE_S

RECHECK_S = 2.0


class Workspace:
    """A folder on the disk, and an exclusion whose clock stands still until told."""

    def __init__(self, root: Path, *folders: str) -> None:
        self.root = root
        self.time = 100.0
        self.exclusion = Exclusion([(root / folder).as_uri() for folder in folders], lambda: self.time, RECHECK_S)

    def write(self, path: str, text: str = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def reason(self, path: str) -> str | None:
        return self.exclusion.reason((self.root / path).as_uri())

    def wait(self) -> None:
        """Until whatever was looked at is looked at again."""
        self.time += RECHECK_S


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, "")


def test_a_file_may_be_used_where_nothing_speaks_against_it(workspace: Workspace) -> None:
    assert workspace.reason("src/a.py") is None


def test_the_reason_names_the_rule_and_its_file(workspace: Workspace) -> None:
    workspace.write(".gitignore", "# made by the build\n*.log\nbuild/\n")
    workspace.write("src/.midfillignore", "private_*\n")
    assert workspace.reason("build/out/a.py") == "build/ in .gitignore, line 3"
    assert workspace.reason("src/private_a.py") == f"private_* in {Path('src/.midfillignore')}, line 1"
    assert workspace.reason(".env") == ".env in the built-in list of secrets"


def test_midfillignore_goes_before_gitignore(workspace: Workspace) -> None:
    workspace.write(".gitignore", "generated/\n")
    workspace.write(".midfillignore", "!generated/\nnotes.md\n")
    workspace.write("docs/.gitignore", "!notes.md\n")
    assert workspace.reason("generated/a.py") is None
    assert workspace.reason("docs/notes.md") is not None


def test_no_ignore_file_brings_a_secret_back(workspace: Workspace) -> None:
    workspace.write(".midfillignore", "!.env\n!*\n")
    assert workspace.reason(".env") is not None


def test_the_repository_reaches_above_the_workspace_folder(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "repository/package")
    workspace.write(".gitignore", "*.py\n")  # above the repository: not heard
    workspace.write("repository/.git/info/exclude", "mine.py\n")
    workspace.write("repository/.gitignore", "/package/out\n")
    assert workspace.reason("repository/package/a.py") is None
    assert workspace.reason("repository/package/out/a.py") == "/package/out in .gitignore, line 1"
    assert workspace.reason("repository/package/mine.py") == "mine.py in .git/info/exclude, line 1"


def test_a_repository_inside_the_workspace_hears_both(workspace: Workspace) -> None:
    workspace.write(".gitignore", "vendor/\n")
    workspace.write("vendor/library/.git/info/exclude", "b.py\n")
    assert workspace.reason("vendor/library/a.py") == "vendor/ in .gitignore, line 1"
    workspace.write(".gitignore", "")
    workspace.wait()
    assert workspace.reason("vendor/library/a.py") is None
    assert workspace.reason("vendor/library/b.py") is not None


@pytest.mark.parametrize("absolute", [False, True])
def test_a_worktree_hears_the_repository_it_belongs_to(tmp_path: Path, absolute: bool) -> None:
    workspace = Workspace(tmp_path)
    workspace.write("main/.git/info/exclude", "/src/mine.py\n")
    workspace.write("main/.git/worktrees/side/commondir", f"{tmp_path / 'main/.git'}\n" if absolute else "../..\n")
    workspace.write("trees/side/.git", f"gitdir: {tmp_path / 'main/.git/worktrees/side'}\n")
    assert workspace.reason("main/src/mine.py") is not None
    assert workspace.reason("trees/side/src/mine.py") is not None
    assert workspace.reason("trees/side/src/yours.py") is None


def test_a_lone_file_hears_its_own_folder(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write(".gitignore", "*.py\n")
    assert workspace.reason("a.py") is not None
    assert workspace.reason("folder/a.py") is None


def test_changes_of_ignore_files_are_noticed_after_a_while(workspace: Workspace) -> None:
    assert workspace.reason("a.py") is None
    file = workspace.write(".gitignore", "a.py\n")
    assert workspace.reason("a.py") is None
    workspace.wait()
    assert workspace.reason("a.py") is not None
    file.write_text("b.py\n")
    workspace.wait()
    assert workspace.reason("a.py") is None
    assert workspace.reason("b.py") is not None
    file.unlink()
    workspace.wait()
    assert workspace.reason("b.py") is None


def test_an_ignore_file_is_read_once_until_it_changes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.write(".gitignore", "b.py\n")
    assert workspace.reason("a.py") is None
    workspace.wait()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", pytest.fail)
        assert workspace.reason("a.py") is None
        assert workspace.reason("b.py") is not None


def test_a_folder_is_matched_once_for_all_files_in_it(workspace: Workspace) -> None:
    workspace.write(".gitignore", "build/\n")
    with mock.patch.object(IgnoreRules, "last_match", autospec=True, side_effect=IgnoreRules.last_match) as last_match:
        for number in range(50):
            assert workspace.reason(f"src/deep/{number}.py") is None
    matched = [call.args[1] for call in last_match.call_args_list if call.kwargs["is_folder"]]
    assert sorted(set(matched)) == ["src", "src/deep"]
    assert len(matched) <= 2 * 2  # the path that the editor gives may have links


def test_a_path_of_very_many_folders_is_no_fault(workspace: Workspace) -> None:
    workspace.write(".gitignore", "b.py\n")
    assert workspace.reason("a/" * 1500 + "a.py") is None
    assert workspace.reason("a/" * 1500 + "b.py") == "b.py in .gitignore, line 1"


def test_an_unreadable_ignore_file_excludes_what_it_governs(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.write("src/.gitignore", "b.py\n")

    def refuse(path: Path, _: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(Path, "open", refuse)
        for _ in range(3):
            reason = workspace.reason("src/a.py")
            workspace.wait()
    assert reason == f"{Path('src/.gitignore')} cannot be used: Permission denied"
    assert workspace.reason("a.py") is None
    assert workspace.reason("src/a.py") is None  # readable again, though the file did not change
    assert len(caplog.records) == 1
    assert "Permission denied" in caplog.text


def test_a_file_that_is_no_text_counts_as_unreadable(workspace: Workspace) -> None:
    (workspace.root / ".gitignore").write_bytes("b.py\n".encode("utf-16"))
    assert workspace.reason("a.py") == ".gitignore cannot be used: it is not UTF-8 text"


def test_a_byte_order_mark_and_windows_line_ends_are_heard(workspace: Workspace) -> None:
    (workspace.root / ".gitignore").write_bytes(b"\xef\xbb\xbfa.py\r\nb/\r\n")
    assert workspace.reason("a.py") is not None
    assert workspace.reason("b/c.py") is not None


def test_a_bad_line_is_named_and_the_others_count(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    workspace.write(".gitignore", "[a\na.py\n")
    assert workspace.reason("a.py") == "a.py in .gitignore, line 2"
    assert workspace.reason("b.py") is None
    assert "line 1: '[a' is not a pattern: a bracket in it does not end" in caplog.text


def test_a_folder_named_like_an_ignore_file_says_nothing(workspace: Workspace) -> None:
    (workspace.root / ".gitignore").mkdir()
    assert workspace.reason("a.py") is None


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_link_and_target_both_count(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "w")
    workspace.write("w/.gitignore", "hidden/\n")
    workspace.write("w/hidden/a.py")
    workspace.write("elsewhere/.env")
    workspace.write("elsewhere/plain.py")
    (tmp_path / "w/innocent.py").symlink_to(tmp_path / "w/hidden/a.py")
    (tmp_path / "w/settings.txt").symlink_to(tmp_path / "elsewhere/.env")
    (tmp_path / "w/server.pem").symlink_to(tmp_path / "elsewhere/plain.py")
    (tmp_path / "w/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "w/loop.py").symlink_to(tmp_path / "w/loop.py")
    assert workspace.reason("w/innocent.py") is not None
    assert workspace.reason("w/settings.txt") is not None
    assert workspace.reason("w/server.pem") is not None
    assert workspace.reason("w/linked/plain.py") is None
    workspace.reason("w/loop.py")  # and does not hang or raise


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_the_workspace_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    workspace = Workspace(tmp_path, "link")
    workspace.write("real/.gitignore", "/out\n")
    workspace.write("real/out/a.py")
    assert workspace.reason("link/out/a.py") is not None
    assert workspace.reason("real/out/a.py") is not None


@pytest.mark.parametrize(
    ("uri", "excluded"),
    [
        ("untitled:Untitled-1", False),
        ("untitled:.env", True),
        ("untitled:/nowhere/.env", True),
        ("buffer:7", False),
        ("inmemory://model/1", False),
        ("vscode-notebook-cell:/nowhere/n.ipynb#ch1", False),
        ("vscode-notebook-cell:/nowhere/.aws/n.ipynb#ch1", True),
        ("file://", False),  # a buffer without a name in Neovim
        ("file:///c%3A/w/a.py", False),
        ("file:///c%3A/w/.env", True),
        ("file:///w/.env?x", True),
        ("file:///w/.env#f", True),
        ("file:///w/c#/.env", True),
        ("file:///w/c#/a.py", False),
        ("file:///nowhere/a%00b.py", True),
        ("vscode-interactive-input:/InteractiveInput-1", False),
        ("vscode-vfs://github/owner/repository/a.py", False),
        ("vsls:/project/a.py", False),
        ("vsls:/project/.env", True),
        ("octo://owner/repository/issue/1", False),
        ("scp://host//home/u/a.py", False),
        ("scp://host//home/u/.ssh/config", True),
        ("zipfile:///home/u/a.zip::dir/a.py", False),
        ("zipfile:///home/u/a.zip::dir/.env", True),
        ("git:/nowhere/a.py?%7B%7D", True),
        ("output:extension-output-1", True),
        ("vscode-userdata:/home/u/settings.json", True),
        ("not a uri", True),
        ("", True),
    ],
)
def test_kinds_of_documents(uri: str, excluded: bool) -> None:
    assert (Exclusion([], lambda: 0.0).reason(uri) is not None) == excluded


def test_a_refused_document_is_not_said_to_be_edited_by_nobody() -> None:
    reason = Exclusion([], lambda: 0.0).reason("output:extension-output-1")
    assert reason == "the scheme 'output' is none of those that midfill knows documents of users by"


def test_ignore_files_here_say_nothing_about_documents_elsewhere(workspace: Workspace) -> None:
    workspace.write(".midfillignore", "*\n")
    path = (workspace.root / "a.py").as_posix()
    assert workspace.exclusion.reason(f"file://{path}") is not None
    assert workspace.exclusion.reason(f"vsls:{path}") is None


def test_what_cannot_be_told_is_excluded(workspace: Workspace) -> None:
    assert workspace.exclusion.reason(f"file://{workspace.root}/\ud800.py") is not None
    assert workspace.exclusion.reason(f"file://{workspace.root}/{'a' * 5000}/b.py") is not None


def test_dots_in_a_path_are_followed(workspace: Workspace) -> None:
    workspace.write(".gitignore", "/private\n")
    assert workspace.exclusion.reason(f"{workspace.root.as_uri()}/src/../private/a.py") is not None


@pytest.mark.parametrize("uri", ["untitled:\ud800", "file:///a/\ud800.py", "untitled:a\0b", "file://[x/a.py"])
def test_a_uri_that_no_file_can_have_raises_nothing(uri: str) -> None:
    Exclusion([], lambda: 0.0).verdict(uri)


KEEP_S = 2.0
RULE = Verdict("a rule", "midfillignore")
IGNORED = Verdict("a rule", "gitignore")


class Rules:
    """Excludes what it is told to, and notes what it is asked, and in which thread."""

    def __init__(self) -> None:
        self.excluded: set[str] = set()
        self.ignored: set[str] = set()
        self.asked: list[str] = []
        self.threads: set[int] = set()
        self.held = threading.Event()
        self.held.set()

    def verdict(self, uri: str) -> Verdict | None:
        self.asked.append(uri)
        self.threads.add(threading.get_ident())
        self.held.wait(10)
        return RULE if uri in self.excluded else IGNORED if uri in self.ignored else None


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(time=100.0)


@pytest.fixture
def verdicts(rules: Rules, clock: SimpleNamespace) -> Verdicts:
    return Verdicts(rules, lambda: clock.time, KEEP_S)


async def test_what_was_not_looked_at_is_excluded(verdicts: Verdicts) -> None:
    assert verdicts.is_excluded("a")
    await verdicts.look(["a"])
    assert not verdicts.is_excluded("a")


async def test_the_event_loop_goes_on_while_a_slow_disk_is_looked_at(verdicts: Verdicts, rules: Rules) -> None:
    rules.held.clear()
    looks = [asyncio.create_task(verdicts.look(["a", "b"])) for _ in range(3)]
    while not rules.asked:
        await asyncio.sleep(0.001)
    looks[0].cancel()  # as a newer request does with an older one
    rules.held.set()
    await asyncio.gather(*looks, return_exceptions=True)
    assert rules.asked == ["a", "b"]  # by one look for all
    assert threading.get_ident() not in rules.threads


async def test_keys_do_not_look_at_the_disk(verdicts: Verdicts, rules: Rules, clock: SimpleNamespace) -> None:
    await verdicts.look(["a"], ["b"])
    for _ in range(100):
        clock.time += KEEP_S / 300
        await verdicts.look(["a"], ["c"])
        verdicts.renew(["a"], ["c"])
    assert rules.asked == ["a", "b"]


async def test_a_change_is_noticed_after_a_while(verdicts: Verdicts, rules: Rules, clock: SimpleNamespace) -> None:
    await verdicts.look(["a", "b"])
    assert verdicts.take_excluded() == {}
    rules.excluded = {"a", "b"}
    clock.time += KEEP_S
    await verdicts.look(["a"], ["b"])
    assert verdicts.take_excluded() == {"a": RULE, "b": RULE}
    assert verdicts.take_excluded() == {}
    clock.time += KEEP_S
    await verdicts.look(["a"])
    assert verdicts.take_excluded() == {}  # as before
    assert verdicts.own("a") == RULE


async def test_an_ignored_file_stays_out_of_others_prompts_until_the_user_wants_it_out_of_its_own(
    verdicts: Verdicts, rules: Rules
) -> None:
    rules.ignored, rules.excluded = {"a"}, {"b"}
    await verdicts.look(["a", "b"])
    assert [verdicts.is_excluded(uri) for uri in "ab"] == [True, True]
    assert [verdicts.own(uri) for uri in "ab"] == [None, RULE]
    assert verdicts.take_excluded() == {"a": IGNORED, "b": RULE}
    verdicts.use(ignored_are_off=True)
    assert verdicts.own("a") == IGNORED
    assert verdicts.take_excluded() == {"a": IGNORED}  # from more prompts than before


async def test_a_file_that_the_user_allows_enters_its_own_prompts_and_no_others(verdicts: Verdicts, rules: Rules) -> None:
    rules.excluded = {"a"}
    await verdicts.look(["a"])
    verdicts.take_excluded()
    verdicts.allow("a")
    assert verdicts.is_excluded("a")
    assert (verdicts.own("a"), verdicts.take_excluded()) == (None, {})
    verdicts.allow("a", allowed=False)
    assert (verdicts.own("a"), verdicts.take_excluded()) == (RULE, {"a": RULE})


async def test_what_is_renewed_in_time_is_not_waited_for(verdicts: Verdicts, rules: Rules, clock: SimpleNamespace) -> None:
    await verdicts.look(["a"])
    rules.excluded = {"a"}
    clock.time += KEEP_S / 2
    verdicts.renew(["a"])
    while not verdicts.is_excluded("a"):
        await asyncio.sleep(0.001)
    clock.time += KEEP_S - 0.1
    rules.held.clear()
    await asyncio.wait_for(verdicts.look(["a"]), PATIENCE_S)


async def test_an_error_of_the_rules_reaches_those_that_wait(verdicts: Verdicts, rules: Rules) -> None:
    def fail(uri: str) -> Verdict | None:
        raise RuntimeError(uri)

    rules.verdict = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a"):
        await verdicts.look(["a"])
    assert verdicts.is_excluded("a")
