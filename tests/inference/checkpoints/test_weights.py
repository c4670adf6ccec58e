from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import gguf
import pytest

from inference.checkpoints.weights import StoredTensor, find_weights, read_header, update_identity
from protocol.errors import BadModel


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_checkpoint, tmp_path / "copy")


def test_whole_file_is_accepted(folder: Path) -> None:
    (weights,) = find_weights(folder)
    assert "model.embed_tokens.weight" in weights.tensors


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1000, -1])
def test_truncated_file_is_refused(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadModel, match=r"model\.safetensors is (not a safetensors file, or is truncated|damaged)"):
        find_weights(folder)


@pytest.mark.parametrize("content", [b"\xff" * 100, b"\x02\0\0\0\0\0\0\0[]", b'\x08\0\0\0\0\0\0\0{"a": 5}'])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadModel, match="not a safetensors file"):
        read_header(path)


def test_shards_are_found_through_the_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}))
    assert [weights.path.name for weights in find_weights(folder)] == ["model-1.safetensors"]
    index.write_text(json.dumps({"weight_map": {"a": "model-2.safetensors"}}))
    with pytest.raises(BadModel, match=r"model-2\.safetensors is missing"):
        find_weights(folder)
    index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(BadModel, match="outside its folder"):
        find_weights(folder)
    index.write_text("{}")
    with pytest.raises(BadModel, match="not an index"):
        find_weights(folder)


def test_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="has no weights"):
        find_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(BadModel, match="only pickled weights"):
        find_weights(tmp_path)


def test_identity_follows_content_and_time(folder: Path) -> None:
    path = folder / "model.safetensors"
    times = path.stat()
    original = identity(path)
    assert identity(path) == original
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert identity(path) != original
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert identity(path) == original
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    assert identity(path) != original


def identity(path: Path) -> str:
    digest = hashlib.sha256()
    update_identity(digest, read_header(path))
    return digest.hexdigest()


def test_every_quantized_type_of_gguf_files_has_one_in_the_kernel() -> None:
    plain = {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"}
    names = {kind.name for kind in gguf.GGMLQuantizationType}
    assert {name for name in names if StoredTensor(name, (32,), 0, 1).kernel_type is None} == plain
