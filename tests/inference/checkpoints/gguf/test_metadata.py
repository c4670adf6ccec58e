from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from inference.checkpoints.gguf.metadata import read_gguf_header
from protocol.errors import BadModel
from tests.inference.tiny_gguf import write_file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fields = {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.tokens": ["a", "<|fim_prefix|>", "ä"],
        "tokenizer.ggml.token_type": [1, 3, 1],
        "tokenizer.ggml.add_bos_token": False,
    }
    tensors = {"one": (np.zeros((2, 5), np.float32), "F32"), "two": (np.zeros(7, np.float32), "F16")}
    return write_file(tmp_path_factory.mktemp("gguf") / "model.gguf", fields, tensors)


def test_metadata_and_tensors_are_those_that_were_written(file: Path) -> None:
    header = read_gguf_header(file)
    assert header.architecture == "llama"
    assert header.of_model("block_count") == 3
    assert header.of_model("context_length") is None
    assert header.metadata["tokenizer.ggml.tokens"] == ("a", "<|fim_prefix|>", "ä")
    assert header.metadata["tokenizer.ggml.token_type"] == (1, 3, 1)
    assert header.metadata["tokenizer.ggml.add_bos_token"] is False
    assert [(name, tensor.shape, tensor.type_name) for name, tensor in header.tensors.items()] == [
        ("one", (2, 5), "F32"),
        ("two", (7,), "F16"),
    ]
    assert [tensor.values for tensor in header.tensors.values()] == [10, 7]


def test_the_header_is_as_the_gguf_package_reads_it(file: Path) -> None:
    from gguf import GGUFReader

    tensors = read_gguf_header(file).tensors
    expected = [(tensor.name, tensor.data_offset, tensor.n_bytes) for tensor in GGUFReader(file).tensors]
    assert [(name, tensor.start, tensor.stop - tensor.start) for name, tensor in tensors.items()] == expected


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: b"", "empty"),
        (lambda content: b"version https://git-lfs.github.com/spec/v1\n", "begins with b'vers'"),
        (lambda content: content[:40], "ends after 40 bytes"),
        (lambda content: content[:-30], "download it again"),
        (lambda content: b"GGUF" + content[4:8][::-1] + content[8:], "big-endian"),
        (lambda content: b"GGUF\x01\0\0\0" + content[8:], "version is 1"),
        (lambda content: content[:8] + b"\xff" * 8 + content[16:], "plausible"),
        (lambda content: content.replace(b"llama.block_count\x04", b"llama.block_count\x7f"), "unknown type 127"),
    ],
)
def test_damaged_files_are_refused_with_the_reason(file: Path, tmp_path: Path, damage, reason) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(damage(file.read_bytes()))
    with pytest.raises(BadModel, match=reason) as refused:
        read_gguf_header(damaged)
    assert str(damaged) in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="missing"):
        read_gguf_header(tmp_path / "none.gguf")
