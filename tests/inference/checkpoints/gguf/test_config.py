from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import pytest

from inference.checkpoints.architecture import read_architecture
from inference.checkpoints.gguf.config import gguf_config
from inference.checkpoints.gguf.metadata import read_gguf_header
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
    folder: Path,
    architecture: str = "llama",
    tensors: dict[str, Any] | None = None,
    fields: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> dict[str, Any]:
    """The config of a file with further `fields`, and `changes` in those of the model: a_b__c stands for a_b.c."""
    changed = {f"{architecture}.{name.replace('__', '.')}": value for name, value in changes.items()}
    described = model_fields(CONFIG | {"model_type": architecture})
    path = write_file(folder / "model.gguf", described, EMBEDDING | (tensors or {}), {**changed, **fields})
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
        ({"attention__causal": False}, "attention.causal is False"),
        ({"attention__sliding_window_pattern": [True, False]}, r"attention.sliding_window_pattern is \(True, False\)"),
        ({"rope__freq_base_swa": 1e4}, "rope.freq_base_swa is 10000.0"),
        ({"rope__scaling__yarn_beta_fast": 8.0}, "rope.scaling.yarn_beta_fast is 8.0"),
        ({"something__of__tomorrow": "x"}, "something.of.tomorrow is 'x'"),
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


USUAL = {
    "vocab_size": 300,
    "tensor_data_layout": "Meta AI original pth",
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.causal": True,
    "rope.scaling.finetuned": True,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_ext_factor": -1.0,
}


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_every_key_of_a_model_is_read_or_neutral_or_refused_by_name(tmp_path: Path, architecture: str) -> None:
    others = {"general.sampling.temp": 0.7, "tokenizer.chat_template": "x", "quantize.imatrix.file": "y", "a.b": 1}
    config_of(tmp_path, architecture, fields={f"{architecture}.{key}": value for key, value in USUAL.items()} | others)
    keys = {key for kind in vars(gguf.Keys).values() for key in getattr(kind, "__dict__", {}).values() if "{arch}." in str(key)}
    names = {key.removeprefix("{arch}.") for key in keys if key.count("{") == 1}
    read = {*USUAL, *(name.partition(".")[2] for name in model_fields(CONFIG | {"model_type": architecture}))}
    read |= {"attention.scale", "attention.sliding_window"} | {f"rope.scaling.{key}" for key in ("type", "factor")}
    refused = names - read - {"rope.scaling.original_context_length"}
    assert len(refused) > 80
    for name in refused:
        with pytest.raises(BadModel, match=f"{architecture}.{name} is 7, which midfill does not support"):
            config_of(tmp_path, architecture, fields={f"{architecture}.{name}": 7})


MOE = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32, "attention.key_length": 12}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128}


def test_what_transformers_overlooks_is_passed_on(tmp_path: Path) -> None:
    config = config_of(tmp_path, "qwen3moe", fields={f"qwen3moe.{key}": value for key, value in (MOE | YARN).items()})
    assert (config["moe_intermediate_size"], config["num_experts"]) == (32, 4)
    rope = config["rope_parameters"]
    assert (rope["rope_type"], rope["factor"], rope["original_max_position_embeddings"]) == ("yarn", 4.0, 128)
    assert rope["rope_theta"] == pytest.approx(1e5)


@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("qwen3moe", {"rope.scaling.type": "longrope", "rope.scaling.factor": 4.0}, "rope.scaling.type is 'longrope'"),
        ("qwen3moe", {"rope.dimension_count": 6}, "rope.dimension_count is 6"),
        ("qwen3moe", {"leading_dense_block_count": 1}, "leading_dense_block_count is 1"),
        ("gemma3", {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}, "rope.scaling.type is 'linear'"),
        ("gemma3", {"attention.sliding_window_pattern": [True, False]}, r"attention.sliding_window_pattern is \(True, False\)"),
        ("gemma3", {"rope.freq_base_swa": 5e5}, "rope.freq_base_swa is 500000.0"),
        (
            "starcoder2",
            {"attention.layer_norm_rms_epsilon": None, "attention.temperature_scale": 0.5},
            "attention.temperature_scale is 0.5",
        ),
    ],
)
def test_what_transformers_would_drop_is_refused(tmp_path: Path, architecture: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadModel, match=f"model.gguf: {architecture}.{reason}"):
        config_of(tmp_path, architecture, fields={f"{architecture}.{key}": value for key, value in changes.items()})


def test_factors_of_rope_that_transformers_does_not_read_are_refused(tmp_path: Path) -> None:
    factors = {"rope_factors_short.weight": (np.ones(6, np.float32), "F32")}
    with pytest.raises(BadModel, match=r"the RoPE of rope_factors_short\.weight is not supported for files of 'phi3'"):
        config_of(tmp_path, "phi3", tensors=factors)
