from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.checkpoints.architecture import read_architecture
from inference.checkpoints.gguf.metadata import gguf_config, read_gguf_header
from protocol.errors import BadModel
from tests.inference.tiny_gguf import model_fields, write_file

CONFIG = {
    "num_hidden_layers": 2,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 1e5},
}
EMBEDDING = {"token_embd.weight": (np.zeros((300, 48), dtype=np.float32), "F32")}


def config_of(
    folder: Path, architecture: str = "llama", tensors: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """The config of a file with `changes` in its fields: a_b__c stands for a_b.c."""
    fields = {f"{architecture}.{name.replace('__', '.')}": value for name, value in changes.items()}
    described = model_fields(CONFIG | {"model_type": architecture})
    path = write_file(folder / "model.gguf", described, EMBEDDING | (tensors or {}), fields)
    return gguf_config([read_gguf_header(path)])


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_the_fields_are_those_of_a_config(tmp_path: Path, architecture: str) -> None:
    shape = read_architecture(config_of(tmp_path, architecture), "model.gguf")
    assert (shape.model_type, shape.layers, shape.heads, shape.kv_heads, shape.head_dim) == (architecture, 2, 4, 2, 12)
    assert (shape.hidden, shape.intermediate, shape.vocabulary, shape.max_positions) == (48, 96, 300, 512)
    assert (shape.rope_theta, shape.rope_type, shape.qk_norm) == (1e5, "default", architecture == "qwen3")
    assert shape.norm_epsilon == pytest.approx(1e-5)
    assert shape.tied_embeddings


def test_a_head_of_its_own_is_not_tied(tmp_path: Path) -> None:
    head = {"output.weight": (np.zeros((300, 48), dtype=np.float32), "F32")}
    assert not config_of(tmp_path, tensors=head)["tie_word_embeddings"]


def test_a_sliding_window_limits_the_positions(tmp_path: Path) -> None:
    assert read_architecture(config_of(tmp_path, attention__sliding_window=100), "model.gguf").max_positions == 100


@pytest.mark.parametrize(
    ("changes", "scaling"),
    [
        ({"rope__scaling__factor": 4.0}, ("linear", 4.0)),
        ({"rope__scale_linear": 4.0}, ("linear", 4.0)),
        ({"rope__scaling__factor": 1.0}, ("default", None)),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, ("default", None)),
    ],
)
def test_a_factor_without_a_type_scales_linearly(
    tmp_path: Path, changes: dict[str, Any], scaling: tuple[str, float | None]
) -> None:
    rope = config_of(tmp_path, **changes)["rope_parameters"]
    assert (rope["rope_type"], rope.get("factor")) == scaling


def test_one_value_for_each_layer_counts_once_if_all_are_equal(tmp_path: Path) -> None:
    assert config_of(tmp_path, attention__head_count_kv=[2, 2])["num_key_value_heads"] == 2
    with pytest.raises(BadModel, match=r"llama.attention.head_count_kv is \(1, 2\)"):
        config_of(tmp_path, attention__head_count_kv=[1, 2])


def test_scaled_rope(tmp_path: Path) -> None:
    scaling = {"rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 128}
    for kind in ("linear", "yarn"):
        rope = config_of(tmp_path, rope__scaling__type=kind, **scaling)["rope_parameters"]
        assert (rope["rope_type"], rope["factor"], rope["original_max_position_embeddings"]) == (kind, 4.0, 128)
    factors = np.linspace(1, 8, 6, dtype=np.float32)
    rope = config_of(tmp_path, tensors={"rope_freqs.weight": (factors, "F32")})["rope_parameters"]
    assert (rope["rope_type"], rope["divisors"]) == ("divided", factors.tolist())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"expert_count": 8}, "expert_count is 8"),
        ({"logit_scale": 0.5}, "logit_scale is 0.5"),
        ({"attention__scale": 0.5}, "attention.scale is 0.5"),
        ({"attention__value_length": 24}, "attention.value_length is 24.*only 12"),
        ({"rope__dimension_count": 6}, "rope.dimension_count is 6.*only 12"),
        ({"rope__scaling__type": "longrope"}, "rope.scaling.type is 'longrope'"),
        ({"block_count": "two"}, "block_count is 'two'"),
        ({"attention__layer_norm_rms_epsilon": float("nan")}, "attention.layer_norm_rms_epsilon is nan"),
        ({"rope__freq_base": [1.0, 2.0]}, r"rope.freq_base is \(1.0, 2.0\)"),
    ],
)
def test_what_is_unsupported_is_named_with_its_value(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadModel, match=f"model.gguf: llama.{reason}"):
        config_of(tmp_path, **changes)


def test_fields_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"model\.gguf has no llama\.block_count"):
        config_of(tmp_path, block_count=None)


def test_damaged_rope_factors_are_refused(tmp_path: Path) -> None:
    for factors, reason in ((np.zeros(6), "cannot be divided by"), (np.ones(5), r"of the shape \(5,\)")):
        with pytest.raises(BadModel, match=reason):
            config_of(tmp_path, tensors={"rope_freqs.weight": (factors.astype(np.float32), "F32")})


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="the architecture 'nonsense' are read neither by midfill nor by transformers"):
        config_of(tmp_path, "nonsense")


def test_a_model_without_an_embedding_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "model.gguf", model_fields(CONFIG | {"model_type": "llama"}), {})
    with pytest.raises(BadModel, match="it is no language model"):
        gguf_config([read_gguf_header(path)])


def test_what_midfill_notes_in_a_file_is_read(tmp_path: Path) -> None:
    fields = model_fields(CONFIG | {"model_type": "llama"})
    notes = {"midfill.fim_format": "midfill", "midfill.fragments_suffice": True}
    header = read_gguf_header(write_file(tmp_path / "model.gguf", fields, EMBEDDING, notes))
    assert gguf_config([header])["midfill"] == {"fim_format": "midfill", "fragments_suffice": True}


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


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_never_raise_anything_but_badmodel(file: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 9))
        content[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(content)
    with contextlib.suppress(BadModel):
        read_gguf_header(changed)
