"""Rules of ignore files: what a line says, and agreement with git over nested files."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from lsp_server.ignore_files import IgnoreFiles
from lsp_server.ignore_rules import BadRule, Scope, deciding_rule, parse_rule

# fmt: off
PATTERNS = [
    "a", "/a", "a/", "*", "*/", "**", "**/", "?", "/*", "/*/", "*.py", "*.txt", "x.*", "foo", "foo/", "foo*", "build",
    "build/", "/foo/*", "a/b", "a/*", "a/**", "*/b", "**/b", "a/**/b", "/**/a", "foo/**/", "b/x.py", "**/*.py",
    "**/foo/x.py", "foo/**/x.py", "[ab]", "[!a]", "[^a]", "[a-", "[z-a]", "[[:alpha:]]", "[![:digit:]]*",
    "[[:lower:]].py", "\\!a", "\\#", "a\\", "foo\\ ", "a ", " a", "/", "#a",
]
# fmt: on
NAMES = ["a", "b", "foo", "x.py", "y.txt", "build"]


def excluded(path: str, *files: tuple[str, str]) -> bool:
    """Whether the ignore files, each a folder and its lines, exclude the path."""
    scopes = []
    for folder, text in files:
        rules = [parse_rule(line, number, ignore_case=False) for number, line in enumerate(text.splitlines(), 1)]
        scopes.append(Scope(folder, len(Path(folder).parts), [rule for rule in rules if rule is not None]))
    return deciding_rule(scopes, Path(path).parts) is not None


@pytest.mark.parametrize("line", ["", "   ", "# comment", "\r", "/"])
def test_a_line_may_say_nothing(line: str) -> None:
    assert parse_rule(line, 1, ignore_case=False) is None


@pytest.mark.parametrize("line", ["a\\", "[z-a]", "!"])
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(BadRule, match="line 7"):
        parse_rule(line, 7, ignore_case=False)


def test_case_counts_unless_told_otherwise() -> None:
    sensitive, insensitive = (parse_rule("Build/", 1, ignore_case=ignore_case) for ignore_case in (False, True))
    assert sensitive is not None
    assert insensitive is not None
    assert not sensitive.matches("build", is_folder=True)
    assert insensitive.matches("build", is_folder=True)
    assert not insensitive.matches("build", is_folder=False)


def test_what_lies_in_an_excluded_folder_cannot_be_taken_back() -> None:
    assert excluded("build/keep.py", ("", "build/\n!keep.py"))
    assert not excluded("build/keep.py", ("", "build/*\n!keep.py"))


def test_a_list_of_what_is_allowed_works() -> None:
    rules = ("", "*\n!*/\n!*.py")
    assert not excluded("src/deep/a.py", rules)
    assert excluded("src/deep/a.bin", rules)


def test_the_innermost_file_decides() -> None:
    assert not excluded("src/a.log", ("", "*.log"), ("src", "!a.log"))
    assert excluded("other/a.log", ("", "*.log"))


def random_tree(chance: random.Random, top: Path) -> list[Path]:
    paths = {top.joinpath(*chance.choices(NAMES, k=chance.randint(1, 4))) for _ in range(60)}
    files = []
    for path in sorted(paths, key=lambda path: -len(path.parts)):
        if not path.exists() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            files.append(path)
    folders = sorted({path.parent for path in files} - {top})
    for folder in [top, *chance.sample(folders, 3)]:
        lines = [chance.choice(["", "", "!"]) + chance.choice(PATTERNS) for _ in range(chance.randint(1, 4))]
        (folder / ".gitignore").write_text("\n".join(lines) + "\n")
    return files


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(12))
def test_git_agrees(seed: int, tmp_path: Path) -> None:
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "XDG_CONFIG_HOME": ""}
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, env=environment)
    files = random_tree(random.Random(seed), tmp_path)
    asked = "\n".join(map(str, files))
    command = ["git", "-C", str(tmp_path), "-c", "core.excludesFile=", "check-ignore", "--no-index", "--stdin"]
    git = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, env=environment)
    ours = IgnoreFiles([tmp_path], now=lambda: 0.0, recheck_s=1.0)
    assert {str(path) for path in files if ours.reason(path)} == set(git.stdout.splitlines())
