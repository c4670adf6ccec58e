from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest

from kv_store.main_memory import ArrayCodec, ArrayWorkspace, KVShape

SHAPE = KVShape(num_layers=3, num_kv_heads=2, head_dim=4, dtype="bfloat16")
GENERATOR = np.random.default_rng(1)


def filled(shape: KVShape = SHAPE, tokens: int = 10) -> ArrayWorkspace:
    workspace = ArrayWorkspace(shape, tokens)
    workspace.bits[...] = GENERATOR.integers(0, 2**16, workspace.bits.shape)
    return workspace


def test_tokens_move_between_workspaces_and_nothing_else_changes() -> None:
    source, goal = filled(), ArrayWorkspace(SHAPE, 10)
    payload = source.export_kv(2, 7)
    assert payload.nbytes == 5 * source.bytes_per_token
    goal.import_kv(1, payload, 3, skip=2)
    assert np.array_equal(goal.bits[:, :, :, 1:4], source.bits[:, :, :, 4:7])
    assert not goal.bits[:, :, :, 0].any()
    assert not goal.bits[:, :, :, 4:].any()


def test_what_is_exported_stays_as_it_was() -> None:
    workspace = filled()
    payload = workspace.export_kv(0, 10)
    before = payload.copy()
    workspace.bits[...] = 0
    assert np.array_equal(payload, before)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 3), (4, 11)])
def test_tokens_beyond_the_workspace_are_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="exceed a workspace of 10"):
        filled().export_kv(start, stop)
    with pytest.raises(ValueError, match="exceed a workspace of 10"):
        filled().import_kv(start, filled().export_kv(0, 10), stop - start)


@pytest.mark.parametrize("shape", [KVShape(2, 2, 4, "bfloat16"), KVShape(3, 2, 4, "float32")])
def test_a_payload_of_another_shape_is_refused(shape: KVShape) -> None:
    with pytest.raises(ValueError, match="exceed a payload"):
        filled().import_kv(0, filled(shape).export_kv(0, 2), 2)


def test_addresses_are_those_of_the_numbers() -> None:
    workspace = filled()
    place = np.ravel_multi_index((2, 1, 1, 3, 2), workspace.bits.shape)
    assert sum(index * stride for index, stride in zip((2, 1, 1, 3, 2), workspace.strides, strict=True)) == place
    assert workspace.address == workspace.bits.ctypes.data


def test_a_workspace_that_has_no_room_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="no memory for a workspace of 1000000000000 tokens"):
        ArrayWorkspace(SHAPE, 10**12)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident pages are counted through Linux' /proc")
def test_a_token_takes_room_once_it_is_written() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    workspace = ArrayWorkspace(KVShape(30, 3, 64, "float32"), 8192)
    assert resident() - before < 2**20
    workspace.bits[:, :, :, :512] = 1
    assert resident() - before > 0.9 * 512 * workspace.bytes_per_token


def test_files_come_back_bit_by_bit() -> None:
    payload, codec = filled().export_kv(0, 5), ArrayCodec(SHAPE)
    decoded = codec.decode(codec.encode(payload, 5), 5)
    assert isinstance(decoded, np.ndarray)
    assert np.array_equal(decoded, payload)


def file_of(dtype: str, shape: tuple[int, ...], name: str = "kv") -> bytes:
    """A safetensors file with zeros of one dtype, which NumPy need not have."""
    size = math.prod(shape) * (4 if dtype == "U32" else 2)
    header = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"nonsense", "not a safetensors file"),
        (file_of("U16", SHAPE.of_tokens(5))[:-1], "not a safetensors file"),
        (file_of("U16", SHAPE.of_tokens(5), "other"), "another model"),
        (file_of("U16", SHAPE.of_tokens(4)), "another model"),
        (file_of("U16", (2, *SHAPE.of_tokens(5)[1:])), "another model"),
        (file_of("U32", SHAPE.of_tokens(5)), "another model"),
        (file_of("BF16", SHAPE.of_tokens(5)), "another model"),
    ],
)
def test_any_other_file_is_refused(data: bytes, reason: str) -> None:
    assert isinstance(ArrayCodec(SHAPE).decode(file_of("U16", SHAPE.of_tokens(5)), 5), np.ndarray)
    with pytest.raises(ValueError, match=reason):
        ArrayCodec(SHAPE).decode(data, 5)
