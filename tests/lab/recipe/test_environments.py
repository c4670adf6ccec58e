from __future__ import annotations

from pathlib import Path

import pytest

from midfill_lab.recipe.environments import installed_packages, standard_library
from midfill_lab.training.errors import CorpusError
from tests.lab.packages import install_package


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
