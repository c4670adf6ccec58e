from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from midfill_lab.recipe.__main__ import app
from midfill_lab.recipe.parts import INDEX, Index, _PartWriter, pack, unpack
from midfill_lab.training.options import TransferError

NAMES = st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3})?\.[a-z]{1,3}", fullmatch=True)
RANDOM = st.integers(0, 2**32).map(lambda seed: np.random.default_rng(seed).bytes(seed % 3000))
CONTENTS = st.one_of(st.binary(max_size=200), RANDOM, st.text(max_size=200).map(lambda text: (text * 20).encode()))


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, CONTENTS, max_size=6), st.integers(100, 5000), st.booleans())
def test_any_folder_comes_back_byte_for_byte(files: dict[str, bytes], part_bytes: int, compress: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        source, packed, target = (Path(name, part) for part in ("source", "packed", "target"))
        source.mkdir()
        try:
            write(source, files)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):  # a file and a folder of one name
            files = tree(source)
        index = pack(source, packed, part_bytes, compress=compress)
        assert all(part.bytes == (packed / part.name).stat().st_size <= part_bytes for part in index.parts)
        assert unpack(packed, target) == index
        assert tree(target) == files


def change(path: Path, edit: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)


def with_index(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((folder / INDEX).read_text())
    edit(index)
    (folder / INDEX).write_text(json.dumps(index))


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    write(tmp_path / "source", {"a.txt": b"line\n" * 5000, "b.bin": np.random.default_rng(0).bytes(3000)})
    pack(tmp_path / "source", tmp_path / "packed", 1000)
    return tmp_path / "packed"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "part-001").unlink(), "part-001 cannot be read"),
        (lambda folder: change(folder / "part-001", lambda content: content.pop()), "part-001 is damaged"),
        (lambda folder: change(folder / "part-001", lambda content: content.reverse()), "part-001 is damaged"),
        (lambda folder: (folder / INDEX).unlink(), "no usable index.json"),
        (lambda folder: (folder / INDEX).write_text("{"), "no usable index.json"),
        (lambda folder: with_index(folder, lambda index: index.update(format=1)), "no usable index.json"),
        (lambda folder: with_index(folder, lambda index: index["parts"][0].update(name="../part-000")), "no usable"),
        (lambda folder: with_index(folder, lambda index: index["parts"].pop(0)), "packed is damaged"),
        (lambda folder: with_index(folder, lambda index: index["parts"].pop()), "packed is damaged"),
        (lambda folder: with_index(folder, lambda index: index.update(files=3)), "2 files with 28000 bytes, of 3"),
    ],
)
def test_what_is_damaged_is_named(packed: Path, tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(packed)
    with pytest.raises(TransferError, match=message):
        unpack(packed, tmp_path / "target")


@pytest.mark.parametrize("name", ["../x", "/x"])
def test_no_file_is_written_beside_the_folder(tmp_path: Path, name: str) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
        archive.addfile(tarfile.TarInfo("../y"))
    with _PartWriter(tmp_path, 2**20) as parts:
        parts.write(content.getvalue())
    (tmp_path / INDEX).write_bytes(msgspec.json.encode(Index(2, 2, 0, tuple(parts.written))))
    with pytest.raises(TransferError, match=r"is damaged: '\.\./"):
        unpack(tmp_path, tmp_path / "target")
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "y").exists()


def test_a_target_with_files_is_left_alone(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="is not empty"):
        pack(tmp_path / "source", packed)


def test_the_commands_pack_and_unpack(tmp_path: Path) -> None:
    write(tmp_path / "source", {"model.safetensors": np.random.default_rng(0).bytes(300_000)})
    places = [str(tmp_path / name) for name in ("source", "packed", "target")]
    told = CliRunner().invoke(app, ["pack", *places[:2], "--part-mib", "0.125"])
    assert told.exit_code == 0, told.output
    assert "1 files, 300,000 bytes: 3 parts" in told.output
    assert CliRunner().invoke(app, ["unpack", *places[1:]]).exit_code == 0
    assert tree(tmp_path / "target") == tree(tmp_path / "source")
    refused = CliRunner().invoke(app, ["unpack", places[0], places[2]])
    assert refused.exit_code == 2
