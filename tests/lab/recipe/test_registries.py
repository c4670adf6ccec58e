from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from midfill_lab.recipe.registries import (
    REGISTRIES,
    Pinned,
    Registry,
    debian_package,
    download,
    folder_of,
    installed_packages,
    npm_package,
    read_list,
    standard_library,
    unpack_downloads,
)
from midfill_lab.training.options import CorpusError
from tests.lab.packages import install_package


def test_lines_are_packages_with_their_version_and_comments_are_none(tmp_path: Path) -> None:
    (tmp_path / "npm.txt").write_text("# a list\n\n@a/b 1.2.3\nc 0.1 held-out # for evaluation\n")
    assert read_list("npm", tmp_path) == (Pinned("@a/b", "1.2.3"), Pinned("c", "0.1", held_out=True))


@pytest.mark.parametrize("line", ["name", "name 1.0 heldout", "name 1.0 held-out more"])
def test_another_line_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    (tmp_path / "pypi.txt").write_text(f"good 1.0\n{line}\n")
    with pytest.raises(CorpusError, match=r"pypi\.txt, line 2"):
        read_list("pypi", tmp_path)


def test_a_missing_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"debian\.txt"):
        read_list("debian", tmp_path)


@pytest.mark.parametrize("registry", REGISTRIES)
def test_the_lists_of_the_repository_hold_packages_out_and_name_none_twice(registry: str) -> None:
    packages = read_list(registry)  # type: ignore[arg-type]
    assert len({package.name for package in packages}) == len(packages)
    assert 4 < sum(package.held_out for package in packages) < 0.1 * len(packages)


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
    assert unpack_downloads("pypi", listed, tmp_path / "pypi", tmp_path / "unpacked") == listed[1:]
    (package,) = installed_packages(tmp_path / "unpacked")
    assert [file.path.as_posix() for file in package.files] == ["my_package/code.py"]
    assert not (tmp_path / "unpacked" / "my_package" / "data.bin").exists()


def test_of_npm_packages_what_people_wrote_is_taken(tmp_path: Path) -> None:
    note = '{"name": "@scope/pkg", "version": "2.0.0", "license": "MIT"}'
    files = ("src/a.ts", "src/a.d.ts", "src/b.js", "dist/a.js", "lib/c.min.js", "src/view.tsx")
    (tmp_path / "npm").mkdir()
    tar(tmp_path / "npm" / "scope-pkg-2.0.0.tgz", {f"package/{name}": "x\n" for name in files} | {"package/package.json": note})
    pinned = Pinned("@scope/pkg", "2.0.0")
    assert unpack_downloads("npm", [pinned], tmp_path / "npm", tmp_path / "unpacked") == []
    package = npm_package(folder_of(tmp_path / "unpacked", pinned))
    assert (package.name, package.licence.permitted) == ("npm/@scope/pkg", True)
    assert [file.path.as_posix() for file in package.files] == ["src/a.ts", "src/view.tsx"]


def test_of_debian_packages_files_under_permissive_stanzas_are_taken(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    names = ("main.c", "gpl/copy.c", "gpl/free.c", "other/x.c", "other/xy.c", "README", "../escape.c")
    tar(tmp_path / "debian" / "pkg_1.0.orig.tar.gz", {f"pkg-1.0/{name}": "x\n" for name in names})
    tar(tmp_path / "debian" / "pkg_1.0-2.debian.tar.gz", {"debian/copyright": COPYRIGHT, "debian/rules.sh": "x\n"})
    pinned = Pinned("pkg", "1:1.0-2")
    assert unpack_downloads("debian", [pinned], tmp_path / "debian", tmp_path / "unpacked") == []
    package = debian_package(folder_of(tmp_path / "unpacked", pinned), pinned)
    assert [file.path.as_posix() for file in package.files] == ["gpl/free.c", "main.c", "other/xy.c"]
    assert package.name == "debian/pkg"
    assert not (tmp_path / "unpacked" / "escape.c").exists()


def test_a_debian_package_without_its_own_source_is_missing(tmp_path: Path) -> None:
    tar(tmp_path / "pkg_1.0-2.debian.tar.gz", {"debian/copyright": COPYRIGHT})
    pinned = Pinned("pkg", "1.0-2")
    assert unpack_downloads("debian", [pinned], tmp_path, tmp_path / "unpacked") == [pinned]


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


def test_packages_come_with_their_own_python_files_only(tmp_path: Path) -> None:
    files = {"a_b/__init__.py": "x = 1\n", "a_b/data.json": "{}", "a_b/deep/module.py": "y = 2\n"}
    install_package(tmp_path, "A_b", "2.1", files, "License-Expression: MIT")
    (tmp_path / "stranger.py").write_text("z = 3\n")
    (package,) = installed_packages(tmp_path)
    assert (package.name, package.version, package.licence.permitted) == ("a-b", "2.1", True)
    assert [file.path.as_posix() for file in package.files] == ["a_b/__init__.py", "a_b/deep/module.py"]


def test_files_that_the_record_lists_and_the_disk_lacks_are_left_out(tmp_path: Path) -> None:
    install_package(tmp_path, "gone", "1", {"gone.py": "x = 1\n"})
    (tmp_path / "gone.py").unlink()
    (package,) = installed_packages(tmp_path)
    assert package.files == ()


def test_a_missing_environment_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no-such-place"):
        list(installed_packages(tmp_path / "no-such-place"))


def test_the_standard_library_is_a_package_without_site_packages() -> None:
    library = standard_library()
    paths = {file.path.as_posix() for file in library.files}
    assert "json/decoder.py" in paths
    assert not any("site-packages" in path for path in paths)
