from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from typer.testing import CliRunner

from midfill_lab.recipe import parts
from midfill_lab.recipe.__main__ import app
from midfill_lab.recipe.parts import INDEX, pack, unpack
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


def weights(path: Path, rows: int = 300) -> None:
    generator = torch.Generator().manual_seed(0)
    tensor = torch.randn(rows, 101, generator=generator) / 50
    kinds = {"a": torch.bfloat16, "b": torch.float32, "c": torch.float16, "d": torch.float64}
    tensors = {name: tensor.to(kind) for name, kind in kinds.items()}
    save_file({**tensors, "e": torch.arange(77), "f": torch.zeros(0), "g": torch.ones(5, dtype=torch.bool)}, path)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, CONTENTS, max_size=6), st.integers(1, 5000))
def test_any_folder_comes_back_byte_for_byte(files: dict[str, bytes], part_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        source, packed, target = (Path(name, part) for part in ("source", "packed", "target"))
        source.mkdir()
        try:
            write(source, files)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):  # a file and a folder of one name
            files = tree(source)
        index = pack(source, packed, part_bytes)
        assert all(part.bytes == (packed / part.name).stat().st_size <= part_bytes for part in index.parts)
        assert unpack(packed, target) == index
        assert tree(target) == files


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 2**70), st.data())
def test_what_only_looks_like_weights_comes_back_too(tail: bytes, claimed: int, data: st.DataObject) -> None:
    header = data.draw(
        st.sampled_from(
            ["[]", "{}", '{"a": 1}', '{"a": {"dtype": "F32", "data_offsets": [0, 7]}}', '{"a": {"data_offsets": [4, 0]}}']
        )
    ).encode()
    size = data.draw(st.sampled_from([len(header), claimed % 2**64]))
    with tempfile.TemporaryDirectory() as name:
        source, packed, target = (Path(name, part) for part in ("source", "packed", "target"))
        write(source, {"model.safetensors": size.to_bytes(8, "little") + header + tail})
        pack(source, packed)
        unpack(packed, target)
        assert tree(target) == tree(source)


def test_weights_are_split_into_planes_and_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "BLOCK_BYTES", 10_000)
    (tmp_path / "source").mkdir()
    weights(tmp_path / "source" / "model.safetensors")
    index = pack(tmp_path / "source", tmp_path / "packed", 50_000)
    (file,) = index.files
    assert sorted(region.width for region in file.regions) == [1, 1, 2, 2, 4, 4, 8, 8]
    bf16 = next(region for region in file.regions if region.width == 2 and region.bytes)
    assert [block.coder for block in bf16.blocks] == ["stored"] * 4 + ["huffman"] * 4  # 30,300 of each byte
    assert sum(block.packed for block in bf16.blocks) < 0.75 * bf16.bytes
    unpack(tmp_path / "packed", tmp_path / "target")
    assert tree(tmp_path / "target") == tree(tmp_path / "source")


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
        (lambda folder: with_index(folder, lambda index: index.update(format=2)), "no usable index.json"),
        (lambda folder: with_index(folder, lambda index: index["files"][0].update(path="../x")), "not below the folder"),
        (lambda folder: with_index(folder, lambda index: index["files"][0].update(path="/x")), "not below the folder"),
        (lambda folder: with_index(folder, lambda index: index["files"][0].update(path="b.bin")), "a file twice"),
        (lambda folder: with_index(folder, lambda index: index["files"][0].update(bytes=1)), "are not its 1 bytes"),
        (lambda folder: with_index(folder, lambda index: index["parts"].pop()), "its parts others"),
        (lambda folder: with_index(folder, lambda index: index["parts"][0].update(name="../part-000")), "no usable"),
        (lambda folder: with_index(folder, lambda index: index["files"][1].update(sha256="0" * 64)), "b.bin is damaged"),
        (
            lambda folder: with_index(folder, lambda index: index["files"][1]["regions"][0]["blocks"][0].update(coder="huffman")),
            "b.bin is damaged",
        ),
    ],
)
def test_what_is_damaged_is_named_and_no_file_of_it_appears(
    packed: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(packed)
    with pytest.raises(TransferError, match=message):
        unpack(packed, tmp_path / "target")
    assert not (tmp_path / "target" / "b.bin").exists()
    assert not (tmp_path / "x").exists()


def test_a_block_is_never_more_than_it_says(packed: Path, tmp_path: Path) -> None:
    def shrink(index: dict[str, Any]) -> None:
        file = index["files"][0]
        file["bytes"] = file["regions"][0]["bytes"] = file["regions"][0]["blocks"][0]["bytes"] = 10

    with_index(packed, shrink)
    with pytest.raises(TransferError, match="a block of 10 bytes has others"):
        unpack(packed, tmp_path / "target")


def test_a_target_with_files_is_left_alone(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="is not empty"):
        pack(tmp_path / "source", packed)


def test_the_commands_pack_and_unpack(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    weights(tmp_path / "source" / "model.safetensors")
    places = [str(tmp_path / name) for name in ("source", "packed", "target")]
    told = CliRunner().invoke(app, ["pack", *places[:2], "--part-mib", "0.125"])
    assert told.exit_code == 0, told.output
    assert "1 files, " in told.output
    assert CliRunner().invoke(app, ["unpack", *places[1:]]).exit_code == 0
    assert tree(tmp_path / "target") == tree(tmp_path / "source")
    refused = CliRunner().invoke(app, ["unpack", places[0], places[2]])
    assert refused.exit_code == 2
