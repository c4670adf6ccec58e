"""Files that git tracks, which it does not ignore, by git itself, in repositories that may be damaged or hostile."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lsp_server.exclusion.exclusion import Exclusion

ENVIRONMENT = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str, given: str = "") -> None:
    subprocess.run(["git", *arguments], cwd=folder, input=given, text=True, check=True, env=ENVIRONMENT)


def repository(folder: Path, *paths: str) -> Path:
    """A repository that tracks these paths, and its index."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "--quiet")
    blob = "0" * 39 + "1"
    git(folder, "update-index", "--add", "--index-info", given="".join(f"100644 {blob}\t{path}\n" for path in paths))
    return folder / ".git" / "index"


def excluded(folder: Path, paths: list[str]) -> set[str]:
    exclusion = Exclusion([folder.as_uri()], lambda: 0.0)
    return {path for path in paths if exclusion.reason((folder / path).as_uri())}


def test_what_git_tracks_is_not_ignored_as_git_says(tmp_path: Path) -> None:
    repository(tmp_path, "build/made.py", "log/a.log", "src/private.py", "é/ü.log")
    (tmp_path / ".gitignore").write_text("build/\n*.log\nprivate.py\n")
    paths = ["build/made.py", "build/other.py", "build/out/x.py", "log/a.log", "b.log", "src/private.py", "private.py", "é/ü.log"]
    command = ["git", "-C", str(tmp_path), "check-ignore", "--stdin"]
    said = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, check=False, env=ENVIRONMENT).stdout
    assert excluded(tmp_path, paths) == set(said.split()) == {"build/other.py", "build/out/x.py", "b.log", "private.py"}


def test_a_forced_add_counts_from_the_next_look_on(tmp_path: Path) -> None:
    time = 0.0
    exclusion = Exclusion([tmp_path.as_uri()], lambda: time, recheck_s=2.0)
    uri = (tmp_path / "build" / "made.py").as_uri()
    repository(tmp_path, "a.py")
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "made.py").touch()
    rules = exclusion.rules_of(tmp_path / "build")
    assert exclusion.reason(uri) == "build/ in .gitignore, line 1"
    assert rules.admission("made.py") is None
    assert not exclusion.rules_of(tmp_path).admits_folder("build")
    git(tmp_path, "add", "--force", "build/made.py")
    time += 2.0
    rules = exclusion.rules_of(tmp_path / "build")
    assert exclusion.reason(uri) is None
    assert exclusion.rules_of(tmp_path).admits_folder("build")
    admission = rules.admission("made.py")
    assert admission is not None
    assert admission in rules.admissions
    git(tmp_path, "rm", "--cached", "--quiet", "build/made.py")
    time += 2.0
    rules = exclusion.rules_of(tmp_path / "build")
    assert admission not in rules.admissions
    assert rules.admission("made.py") is None


def test_a_file_is_tracked_whichever_rule_comes_to_match_it(tmp_path: Path) -> None:
    time = 0.0
    exclusion = Exclusion([tmp_path.as_uri()], lambda: time, recheck_s=2.0)
    repository(tmp_path, "made.py", "kept.py")
    (tmp_path / ".gitignore").write_text("kept.py\n")
    assert exclusion.reason((tmp_path / "kept.py").as_uri()) is None
    (tmp_path / ".gitignore").write_text("kept.py\nmade.py\n")
    time += 2.0
    assert exclusion.reason((tmp_path / "made.py").as_uri()) is None


def test_git_is_asked_again_when_it_has_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time = 0.0
    exclusion = Exclusion([tmp_path.as_uri()], lambda: time, recheck_s=2.0)
    repository(tmp_path, "made.py")
    (tmp_path / ".gitignore").write_text("made.py\n")
    uri = (tmp_path / "made.py").as_uri()
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", str(tmp_path))
        assert exclusion.reason(uri) == "made.py in .gitignore, line 1"
    time += 60.0
    assert exclusion.reason(uri) is None


@pytest.mark.skipif(sys.platform != "linux", reason="file systems there have no such names")
def test_a_name_that_is_not_utf_8_is_tracked(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    repository(tmp_path)
    (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.py\n")
    rules = Exclusion([tmp_path.as_uri()], lambda: 0.0).rules_of(tmp_path)
    assert rules.admission(name) is None
    git(tmp_path, "add", "--force", ".")
    assert Exclusion([tmp_path.as_uri()], lambda: 0.0).rules_of(tmp_path).admission(name) is not None


def test_tracking_undoes_no_rule_of_midfillignore_nor_of_another_repository(tmp_path: Path) -> None:
    repository(tmp_path / "vendor", "library.py", "made.py")
    (tmp_path / "vendor" / ".gitignore").write_text("made.py\n")
    (tmp_path / "vendor" / ".midfillignore").write_text("own.py\n")
    assert excluded(tmp_path, ["vendor/library.py", "vendor/made.py", "vendor/own.py"]) == {"vendor/own.py"}
    (tmp_path / ".gitignore").write_text("vendor/\n")
    assert excluded(tmp_path, ["vendor/library.py", "vendor/made.py"]) == {"vendor/library.py", "vendor/made.py"}


def test_an_index_that_cannot_be_read_leaves_gitignore_alone(tmp_path: Path) -> None:
    index = repository(tmp_path, "build/made.py")
    (tmp_path / ".gitignore").write_text("build/\n")
    index.write_bytes(index.read_bytes()[:70])
    assert excluded(tmp_path, ["build/made.py", "a.py"]) == {"build/made.py"}


def test_without_git_what_it_tracks_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path, "build/made.py")
    (tmp_path / ".gitignore").write_text("build/\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert excluded(tmp_path, ["build/made.py", "a.py"]) == {"build/made.py"}


def test_git_runs_no_program_of_the_repository(tmp_path: Path) -> None:
    repository(tmp_path, "build/made.py")
    (tmp_path / ".gitignore").write_text("build/\n")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path / 'ran'}; false")
    assert excluded(tmp_path, ["build/made.py"]) == set()
    assert not (tmp_path / "ran").exists()
