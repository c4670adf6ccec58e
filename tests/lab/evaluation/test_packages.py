"""Pinned packages, unpacked without what a workspace would not hold, and lines that use what another file defines."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from midfill_lab.evaluation import packages
from midfill_lab.evaluation.packages import PACKAGES, CrossFileTask, Package, cut_tasks, unpacked
from protocol.errors import BadInput

PERMISSIVE = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}
SAMPLE = Package("python", "sample", "1.0", "MIT")


def test_every_package_is_pinned_and_permissive() -> None:
    for package in PACKAGES:
        assert package.version[0].isdigit()
        assert PERMISSIVE.issuperset(package.licence.split(" OR ")), package
    assert len({package.folder for package in PACKAGES}) == len(PACKAGES)


def test_a_package_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def download(command: tuple[str, ...], cwd: Path, **_: object) -> None:
        calls.append(command)
        with zipfile.ZipFile(cwd / "sample-1.0.whl", "w") as wheel:
            wheel.writestr("sample/lib.py", "x = 1\n")
            wheel.writestr("sample/data.json", "{}")
            wheel.writestr("../../out.py", "x = 1\n")

    monkeypatch.setattr(packages.subprocess, "run", download)
    for _ in range(2):
        folder = unpacked(SAMPLE, tmp_path)
    assert len(calls) == 1
    assert "sample==1.0" in calls[0]
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*")) == ["out.py", "sample/lib.py"]
    assert [path.name for path in (tmp_path / "python").iterdir()] == ["sample-1.0"]


def test_a_failed_download_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: tuple[str, ...], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: No matching distribution found\n")

    monkeypatch.setattr(packages.subprocess, "run", fail)
    with pytest.raises(BadInput, match=r"sample 1\.0 cannot be downloaded: ERROR: No matching distribution"):
        unpacked(SAMPLE, tmp_path)
    assert not list((tmp_path / "python").iterdir())


PYTHON = Package("python", "sample", "1.0", "MIT")
TYPESCRIPT = Package("typescript", "sample", "1.0", "MIT")
FILLER = "".join(f"value_{n} = compute({n}, {n + 1})  # a line of its own\n" for n in range(12))


def cut(folder: Path, files: dict[str, str], package: Package = PYTHON) -> list[CrossFileTask]:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return cut_tasks(package, folder, seed=0)


LIB = "def load_config(path, strict): ...\nclass Reader:\n    def read_all(self, limit): ...\n" + FILLER


def test_a_task_begins_at_the_symbol(tmp_path: Path) -> None:
    user = f"from lib import load_config\n\nconfig = load_config(value_1, strict=True)\n{FILLER}"
    (task,) = cut(tmp_path, {"lib.py": LIB, "user.py": user})
    assert (task.name, task.symbol, task.middle) == ("sample/user.py:3", "load_config", "load_config(value_1, strict=True)")
    assert task.before + task.middle + task.after == user
    assert task.after.startswith("\n")


def test_a_member_that_one_other_file_defines(tmp_path: Path) -> None:
    user = f"def work(reader):\n    return reader.read_all(limit=3)\n{FILLER}"
    (task,) = cut(tmp_path, {"lib.py": LIB, "user.py": user})
    assert task.middle == "read_all(limit=3)"
    assert task.before.endswith("reader.")


@pytest.mark.parametrize(
    "line",
    [
        "from lib import load_config",
        "# load_config(value_1, strict=True)",
        "text = 'load_config(a, strict=True)'",
        "load_config",
        "config = read_all(limit=3)",
        "config = own.strip('load')",
        "@load_config(value_1, strict=True)",
        "x = load_config('a.toml', strict=True)",
        "from other import (\n    load_config as another,\n)",
        "x = reader.read_all",
    ],
)
def test_what_is_no_use(tmp_path: Path, line: str) -> None:
    user = f"from lib import load_config\n\n{line}\n{FILLER}"
    assert cut(tmp_path, {"lib.py": LIB, "user.py": user}) == []


def test_a_symbol_of_the_file_itself_or_a_repeated_line_is_no_task(tmp_path: Path) -> None:
    own = f"def helper_one(path): ...\n\nx = helper_one('a.toml')\n{FILLER}"
    twice = "from lib import load_config\n\n" + "x = load_config(value_1, True)\n" * 2 + FILLER
    assert cut(tmp_path, {"lib.py": LIB, "own.py": own, "twice.py": twice}) == []


def test_tests_and_copies_of_others_are_not_cut(tmp_path: Path) -> None:
    user = f"from lib import load_config\n\nconfig = load_config(value_1, strict=True)\n{FILLER}"
    assert cut(tmp_path, {"lib.py": LIB, "tests/test_user.py": user, "_vendor/user.py": user}) == []


def test_typescript(tmp_path: Path) -> None:
    filler = "".join(f"const value{n} = compute({n}, {n + 1}); // a line of its own\n" for n in range(12))
    user = f"import {{ loadConfig }} from './lib'\n\nexport const config = await loadConfig(value1, true)\n{filler}"
    files = {"src/lib.ts": f"export function loadConfig(path: string) {{}}\n{filler}", "src/user.ts": user}
    (task,) = cut(tmp_path, files, TYPESCRIPT)
    assert task.middle == "loadConfig(value1, true)"


def test_the_same_seed_gives_the_same_tasks_and_few_of_a_file(tmp_path: Path) -> None:
    uses = "".join(f"config_{n} = load_config(value_{n}, strict=True)\n" for n in range(9))
    files = {"lib.py": LIB, "user.py": f"from lib import load_config\n{uses}{FILLER}"}
    tasks = cut(tmp_path, files)
    assert len(tasks) == 3
    assert cut(tmp_path, files) == tasks
