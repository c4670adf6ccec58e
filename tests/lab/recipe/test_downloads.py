from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from midfill_lab.recipe.debian_packages import debian_package
from midfill_lab.recipe.downloads import download, folder_of, unpack
from midfill_lab.recipe.environments import installed_packages
from midfill_lab.recipe.npm_packages import npm_package
from midfill_lab.recipe.package_lists import Pinned, Registry

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2020, Someone
License: Expat

Files: gpl/* other/?.c
Copyright: 2020, Someone else
License: GPL-2+
 A long text.
 .
 And more.

Files: gpl/free.c
License: BSD-3-clause or GPL-2
"""


def tar(path: Path, files: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


def test_wheels_become_an_environment(tmp_path: Path) -> None:
    (tmp_path / "pypi").mkdir()
    with zipfile.ZipFile(tmp_path / "pypi" / "My_Package-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("my_package/code.py", "x = 1\n")
        wheel.writestr("my_package/data.bin", "x")
        wheel.writestr("my_package-1.0.dist-info/METADATA", "Metadata-Version: 2.4\nName: My-Package\nVersion: 1.0\n")
        wheel.writestr("my_package-1.0.dist-info/RECORD", "my_package/code.py,,\nmy_package/data.bin,,\n")
    listed = [Pinned("my-package", "1.0"), Pinned("my", "1.0"), Pinned("my-package", "1.1")]
    assert unpack("pypi", listed, tmp_path / "pypi", tmp_path / "unpacked") == listed[1:]
    (package,) = installed_packages(tmp_path / "unpacked")
    assert [file.path.as_posix() for file in package.files] == ["my_package/code.py"]
    assert not (tmp_path / "unpacked" / "my_package" / "data.bin").exists()


def test_of_npm_packages_what_people_wrote_is_taken(tmp_path: Path) -> None:
    note = '{"name": "@scope/pkg", "version": "2.0.0", "license": "MIT"}'
    files = ("src/a.ts", "src/a.d.ts", "src/b.js", "dist/a.js", "lib/c.min.js", "src/view.tsx")
    (tmp_path / "npm").mkdir()
    tar(
        tmp_path / "npm" / "scope-pkg-2.0.0.tgz",
        {f"package/{name}": "x\n" for name in files} | {"package/package.json": note},
    )
    pinned = Pinned("@scope/pkg", "2.0.0")
    assert unpack("npm", [pinned], tmp_path / "npm", tmp_path / "unpacked") == []
    package = npm_package(folder_of(tmp_path / "unpacked", pinned))
    assert (package.name, package.licence.permitted) == ("npm/@scope/pkg", True)
    assert [file.path.as_posix() for file in package.files] == ["src/a.ts", "src/view.tsx"]


def test_of_debian_packages_files_under_permissive_stanzas_are_taken(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    names = ("main.c", "gpl/copy.c", "gpl/free.c", "other/x.c", "other/xy.c", "README", "../escape.c")
    tar(tmp_path / "debian" / "pkg_1.0.orig.tar.gz", {f"pkg-1.0/{name}": "x\n" for name in names})
    tar(tmp_path / "debian" / "pkg_1.0-2.debian.tar.gz", {"debian/copyright": COPYRIGHT, "debian/rules.sh": "x\n"})
    pinned = Pinned("pkg", "1:1.0-2")
    assert unpack("debian", [pinned], tmp_path / "debian", tmp_path / "unpacked") == []
    package = debian_package(folder_of(tmp_path / "unpacked", pinned), pinned)
    assert [file.path.as_posix() for file in package.files] == ["gpl/free.c", "main.c", "other/xy.c"]
    assert package.name == "debian/pkg"
    assert not (tmp_path / "unpacked" / "escape.c").exists()


def test_a_debian_package_without_its_own_source_is_missing(tmp_path: Path) -> None:
    tar(tmp_path / "pkg_1.0-2.debian.tar.gz", {"debian/copyright": COPYRIGHT})
    pinned = Pinned("pkg", "1.0-2")
    assert unpack("debian", [pinned], tmp_path, tmp_path / "unpacked") == [pinned]


@pytest.mark.parametrize(("registry", "client"), [("pypi", "pip"), ("npm", "npm"), ("debian", "apt-get")])
def test_each_registry_is_asked_by_its_own_client_for_what_is_missing(
    registry: Registry, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(" ".join(command))
        return subprocess.CompletedProcess(command, 0, "http://mirror.example/debian\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("shutil.which", lambda name: name)
    download(registry, [Pinned("pkg", "1.0")], tmp_path)
    assert client in asked[-1]
    assert "pkg" in asked[-1]
    assert "1.0" in asked[-1]
    if registry == "debian":
        sources = (tmp_path / "apt" / "sources.list").read_text(encoding="utf-8")
        assert sources == "deb-src http://mirror.example/debian bookworm main\n"
