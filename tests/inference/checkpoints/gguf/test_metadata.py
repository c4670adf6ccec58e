from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference.checkpoints.gguf.metadata import GgufHeader, read_gguf_header, state_bytes
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


DELTA = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16, "ssm.inner_size": 4096}
MAMBA = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 1, "ssm.inner_size": 8192}


@pytest.mark.parametrize(
    ("sizes", "mebibytes"),
    [
        ({"block_count": 32, "full_attention_interval": 4, **DELTA}, 50.25),  # Qwen3.5-9B, as llama.cpp logs it
        ({"block_count": 40, "attention.head_count_kv": (0,) * 36 + (8,) * 4, **MAMBA}, 147.48),  # Granite-4-H-small
        ({"block_count": 16, "attention.head_count_kv": (0,) * 10 + (8,) * 6, "embedding_length": 2048,
          "shortconv.l_cache": 3}, 0.16),  # LFM2-1.2B
        ({"block_count": 4, "attention.head_count": 32, "kda.head_dim": 128, "ssm.conv_kernel": 4}, 8.56),  # KDA
        ({"block_count": 32, "attention.head_count_kv": 8, "embedding_length": 4096}, 0),
        ({"block_count": "many", "ssm.inner_size": [], "ssm.state_size": -1}, 0),
        ({}, 0),
    ],
)  # fmt: skip
def test_the_size_of_a_copy_of_the_states(sizes: dict[str, Any], mebibytes: float) -> None:
    metadata = {"general.architecture": "a"} | {f"a.{key}": value for key, value in sizes.items()}
    assert round(state_bytes(GgufHeader(Path("model.gguf"), metadata, {})) / 2**20, 2) == mebibytes
