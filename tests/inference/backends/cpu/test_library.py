from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.backends.cpu import library
from inference.backends.cpu.library import KernelUnavailable, choose_level, levels, load_library, unavailable_reason


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where the library is looked for, in which there is none yet."""
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    load_library.cache_clear()
    yield tmp_path
    load_library.cache_clear()


def test_without_a_library_it_says_what_to_do(elsewhere: Path) -> None:
    assert "install a C++ compiler" in (unavailable_reason() or "")
    with pytest.raises(KernelUnavailable, match="install a C\\+\\+ compiler"):
        levels()


def test_a_file_that_is_no_library_is_named(elsewhere: Path) -> None:
    (elsewhere / library.FILE).write_bytes(b"not a library")
    assert f"{elsewhere}/_decode" in (unavailable_reason() or "")


@pytest.mark.usefixtures("compiled")
def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    shutil.copy(Path(library.__spec__.origin or "").with_name(library.FILE), elsewhere / library.FILE)
    monkeypatch.setattr(library, "VERSION", 99)
    assert "another version of midfill" in (unavailable_reason() or "")


@pytest.mark.usefixtures("compiled")
def test_the_level_is_the_best_or_what_is_asked_for() -> None:
    assert levels()[0] == "portable"
    assert choose_level(None, {}) == levels()[-1]
    assert choose_level(None, {library.LEVEL_VARIABLE: "portable"}) == "portable"
    assert choose_level("portable", {library.LEVEL_VARIABLE: levels()[-1]}) == "portable"
    with pytest.raises(KernelUnavailable, match="unknown level 'avx1024': this CPU supports portable"):
        choose_level(None, {library.LEVEL_VARIABLE: "avx1024"})
