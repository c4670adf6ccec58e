"""Rules of ignore files: what a line says, agreement with git, and that no file takes long to match."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsp_server.exclusion.ignore_files import IgnoreFiles
from lsp_server.exclusion.ignore_rules import IgnoreRules, TooManyWildcards

# fmt: off
PIECES = [
    "a", "b", "ab", "*", "**", "?", "/", "**/", "/**", "[ab]", "[!a]", "[^b]", "[a-", "[b-a]", "[--a]", "[]a]",
    "[a\\]b]", "[[:alpha:]]", "[![:digit:]]", "[[:nothing:]]", "\\a", "\\*", "\\/", "\\", "!", "#", " ", ".", "[", "]",
    "-", "***", "é",
]
NAMES = ["a", "b", "ab", "aab", "abb", "é", ".a", " a", "a ", "*", "#a", "!b", "a-b", "[a]", "]"]
# fmt: on
LINES = st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=4)
PATHS = st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5).map("/".join), min_size=10, max_size=30)


def rules(*lines: str, ignore_case: bool = False) -> IgnoreRules:
    return IgnoreRules(lines, ignore_case=ignore_case)


@pytest.mark.parametrize("line", ["", "   ", "# comment", "\r", "/"])
def test_a_line_may_say_nothing(line: str) -> None:
    said = rules(line)
    assert not said.bad
    assert said.last_match("# comment", is_folder=True) is None


@pytest.mark.parametrize("line", ["a\\", "[/]", "!", "[a", "[[:nothing:]]"])
def test_a_bad_line_is_named(line: str) -> None:
    (named,) = rules("a", line).bad
    assert named.startswith(f"line 2: {line!r} is not a pattern: ")


def test_case_counts_unless_told_otherwise() -> None:
    lines = ("Build/", "*.O", "[x]y[Z]")
    for name, is_folder in (("build", True), ("a.o", False), ("xyz", False)):
        assert rules(*lines).last_match(name, is_folder=is_folder) is None
        assert rules(*lines, ignore_case=True).last_match(name, is_folder=is_folder) is not None
    assert rules(*lines, ignore_case=True).last_match("build", is_folder=False) is None


@pytest.mark.parametrize(
    ("path", "files", "expected"),
    [
        # what lies in an excluded folder cannot be taken back
        ("build/keep.py", [("", "build/\n!keep.py")], True),
        ("build/keep.py", [("", "build/*\n!keep.py")], False),
        # a list of what is allowed works
        ("src/deep/a.py", [("", "*\n!*/\n!*.py")], False),
        ("src/deep/a.bin", [("", "*\n!*/\n!*.py")], True),
        # the innermost file decides
        ("src/a.log", [("", "*.log"), ("src", "!a.log")], False),
        ("other/a.log", [("", "*.log")], True),
    ],
)
def test_which_rule_decides(tmp_path: Path, path: str, files: list[tuple[str, str]], expected: bool) -> None:
    for folder, text in files:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / ".gitignore").write_text(text)
    ignored = IgnoreFiles([tmp_path], now=lambda: 0.0, recheck_s=1.0)
    assert (ignored.verdict(tmp_path / path) is not None) == expected


@pytest.mark.parametrize("stars", ["*a" * 40, "?*" * 20 + "a" * 20, "**/*a*/" * 10, "[a]*" * 40])
def test_no_pattern_takes_exponential_time(stars: str) -> None:
    """A backtracking matcher does not return from these within the age of the universe."""
    path = "/".join(["a" * 200] * 15)
    assert rules(stars + "b", "/" + stars + "b").last_match(path, is_folder=False) is None


def test_very_many_lines_are_looked_up_and_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [form.format(number) for number in range(2_000) for form in ("name{}", "/path/{}", "*.ending{}")]
    with monkeypatch.context() as patch:
        patch.setattr("lsp_server.exclusion.ignore_rules.expression", pytest.fail)
        many = rules(*lines, "!name7")
    for path, negated in (("src/name9", False), ("path/9", False), ("a.ending9", False), ("name7", True)):
        found = many.last_match(path, is_folder=False)
        assert found.negated == negated
    assert many.last_match("a.py", is_folder=False) is None


def test_there_is_a_limit_to_patterns_that_have_to_be_tried() -> None:
    rules(*["a?b"] * 20_000)
    with pytest.raises(TooManyWildcards, match="65536 bytes"):
        rules(*["a?b"] * 30_000)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "--quiet", folder], check=True, env=ENVIRONMENT)
    return folder


ENVIRONMENT = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "XDG_CONFIG_HOME": ""}


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=LINES, inner=LINES, paths=PATHS)
def test_git_agrees(repository: Path, top: list[str], inner: list[str], paths: set[str]) -> None:
    (repository / "a").mkdir(exist_ok=True)
    paths -= {"a"}  # all of them are files
    (repository / ".gitignore").write_text("\n".join(top))
    (repository / "a/.gitignore").write_text("\n".join(inner))
    command = ["git", "-C", str(repository), "-c", "core.excludesFile=", "check-ignore", "--no-index", "-z", "--stdin"]
    git = subprocess.run(command, input="\0".join(paths), capture_output=True, text=True, check=False, env=ENVIRONMENT)
    ours = IgnoreFiles([repository], now=lambda: 0.0, recheck_s=1.0)
    assert {path for path in paths if ours.verdict(repository / path)} == set(filter(None, git.stdout.split("\0")))
