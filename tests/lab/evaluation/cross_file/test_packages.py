"""Packages: pinned, with their licences, and unpacked without what a workspace would not hold."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from midfill_lab.evaluation.cross_file import packages
from midfill_lab.evaluation.cross_file.packages import PACKAGES, Package, unpacked
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


def test_a_failed_download_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: tuple[str, ...], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: No matching distribution found\n")

    monkeypatch.setattr(packages.subprocess, "run", fail)
    with pytest.raises(BadInput, match=r"sample 1\.0 cannot be downloaded: ERROR: No matching distribution"):
        unpacked(SAMPLE, tmp_path)
    assert not list((tmp_path / "python").iterdir())
