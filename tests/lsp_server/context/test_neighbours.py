"""Neighbouring files: the nearest by name, read again when they change, and no file that is not text."""

from __future__ import annotations

import os
from pathlib import Path

from lsp_server.context.index_sources import MAX_NEIGHBOURS, NeighbourTexts, neighbours_of


def names(uris: list[str]) -> list[str]:
    return [uri.rpartition("/")[2] for uri in uris]


def test_the_nearest_names_first(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "d.py", "e.py", "c.ts"):
        (tmp_path / name).touch()
    uri = (tmp_path / "c.py").as_uri()
    found = names(neighbours_of(uri, {(tmp_path / "e.py").as_uri()}))
    assert sorted(found) == ["a.py", "b.py", "d.py"]
    assert found[-1] == "a.py"


def test_a_known_file_is_known_however_its_editor_writes_the_uri(tmp_path: Path) -> None:
    (tmp_path / "+page.py").touch()
    known = (tmp_path / "+page.py").as_uri().replace("%2B", "+")
    assert neighbours_of((tmp_path / "a.py").as_uri(), {known}) == []


def test_there_are_not_many(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}.py").touch()
    assert len(neighbours_of((tmp_path / "7.py").as_uri(), ())) == MAX_NEIGHBOURS


def test_documents_without_a_place_have_none(tmp_path: Path) -> None:
    for uri in ("untitled:Untitled-1", "file:///nowhere/at/all.py", (tmp_path / "Makefile").as_uri(), "file:///a\0.py"):
        assert neighbours_of(uri, ()) == []


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file, texts = tmp_path / "a.py", NeighbourTexts()
    file.write_text("one\n")
    (first,) = texts.read([file.as_uri()])
    (again,) = texts.read([file.as_uri()])
    assert again is first
    file.write_text("one and two\n")
    (changed,) = texts.read([file.as_uri()])
    assert changed.lines == ("one and two\n", "")


def test_what_is_no_text_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(bytes(range(256)))
    (tmp_path / "huge.py").write_bytes(b"x\n" * 100_000)
    (tmp_path / "folder.py").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.py")
    uris = [(tmp_path / name).as_uri() for name in ("binary.py", "huge.py", "folder.py", "pipe.py", "gone.py")]
    assert list(NeighbourTexts().read(uris)) == []
