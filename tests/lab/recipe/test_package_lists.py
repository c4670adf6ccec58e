from __future__ import annotations

from pathlib import Path

import pytest

from midfill_lab.recipe.package_lists import REGISTRIES, Pinned, read_list
from midfill_lab.training.errors import CorpusError


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
