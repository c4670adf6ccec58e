"""Git's index as git writes it in each version, and what is no index."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsp_server.exclusion.exclusion import Exclusion
from lsp_server.exclusion.git_index import BadIndex, read_index

ENVIRONMENT = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
LONG = "/".join(["deep" * 20] * 60)  # of more bytes than the flags of an entry can say
PATHS = ["a.py", "build/made.py", "build/out/deep.py", "build/outer.py", "é/ü.py", LONG, "z.py"]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str, given: str = "") -> None:
    subprocess.run(["git", *arguments], cwd=folder, input=given, text=True, check=True, env=ENVIRONMENT)


def repository(folder: Path, *paths: str, hash_name: str = "sha1") -> Path:
    """A repository that tracks these paths, and its index."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "--quiet", f"--object-format={hash_name}")
    blob = "0" * (39 if hash_name == "sha1" else 63) + "1"
    git(folder, "update-index", "--add", "--index-info", given="".join(f"100644 {blob}\t{path}\n" for path in paths))
    return folder / ".git" / "index"


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("hash_name", ["sha1", "sha256"])
def test_each_version_is_read(tmp_path: Path, version: int, hash_name: str) -> None:
    index = repository(tmp_path, *PATHS, hash_name=hash_name)
    expected = set(PATHS)
    if version == 3:  # git writes it if an entry needs further flags
        (tmp_path / "new.py").touch()
        git(tmp_path, "add", "--intent-to-add", "new.py")
        expected.add("new.py")
    git(tmp_path, "update-index", f"--index-version={version}")
    data = index.read_bytes()
    assert data[7] == version
    tracked = read_index(data)
    assert tracked.files == expected
    assert {"build", "build/out", "é", LONG.rpartition("/")[0]} <= tracked.folders
    assert "" not in tracked.folders


def test_an_empty_index_tracks_nothing(tmp_path: Path) -> None:
    index = repository(tmp_path, "a.py")
    git(tmp_path, "update-index", "--force-remove", "a.py")
    assert read_index(index.read_bytes()).files == frozenset()


def test_a_split_index_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    index = repository(tmp_path, *PATHS)
    git(tmp_path, "update-index", "--split-index")
    with pytest.raises(BadIndex, match="split"):
        read_index(index.read_bytes())


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    found = []
    for version in (2, 4):
        folder = tmp_path_factory.mktemp("repository")
        index = repository(folder, *PATHS)
        git(folder, "update-index", f"--index-version={version}")
        found.append(index.read_bytes())
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_index_is_bad_or_another_index(indexes: list[bytes], data: st.DataObject) -> None:
    index = bytearray(data.draw(st.sampled_from(indexes)))
    for place in data.draw(st.lists(st.integers(0, len(index) - 1), max_size=5)):
        index[place] = data.draw(st.integers(0, 255))
    with suppress(BadIndex):
        read_index(bytes(index[: data.draw(st.integers(0, len(index)))]))


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC\0\0\0\x05\0\0\0\0", b"DIRC\0\0\0\2\xff\xff\xff\xff", b"x" * 99])
def test_what_is_no_index_is_bad(data: bytes) -> None:
    with pytest.raises(BadIndex):
        read_index(data)


def excluded(folder: Path, paths: list[str]) -> set[str]:
    exclusion = Exclusion([folder.as_uri()], lambda: 0.0)
    return {path for path in paths if exclusion.reason((folder / path).as_uri())}


def test_what_git_tracks_is_not_ignored_as_git_says(tmp_path: Path) -> None:
    repository(tmp_path, "build/made.py", "log/a.log", "src/private.py")
    (tmp_path / ".gitignore").write_text("build/\n*.log\nprivate.py\n")
    paths = ["build/made.py", "build/other.py", "build/out/x.py", "log/a.log", "b.log", "src/private.py", "private.py"]
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


def test_an_index_that_is_too_long_is_not_read() -> None:
    with pytest.raises(BadIndex, match="longer than 16777216 bytes"):
        read_index(b"DIRC" + bytes(1 << 24))
