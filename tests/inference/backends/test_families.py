"""Families of transformers, as tiny random models: each runs exactly, or is refused before its weights are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText, PreTrainedModel

from inference.backends.generic import load_generic
from inference.backends.model import Chunk
from inference.checkpoints.generic_shape import auto_class, read_generic_shape
from protocol.errors import BadModel

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "sliding_window": 24,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
EXACT: dict[str, dict[str, Any]] = {
    **{family: {} for family in ("apertus", "arcee", "gemma", "glm", "glm4_moe", "granitemoe", "hunyuan_v1_dense")},
    **{family: {} for family in ("nemotron", "olmo2", "phimoe", "qwen2_moe", "stablelm")},
    "codegen": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_ctx": 256},
    "laguna": {"layer_types": ["sliding_attention", "full_attention"]},
    "ministral": {"layer_types": ["sliding_attention", "full_attention"]},
    "cohere2": {"layer_types": ["sliding_attention", "full_attention"]},
    "ernie4_5": {},
    "exaone4": {"layer_types": ["sliding_attention", "full_attention"]},
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention"]},
    "glm4": {},
    "gpt_oss": {"layer_types": ["sliding_attention", "full_attention"]},
    "granite": {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0},
    "llama4_text": {"layer_types": ["chunked_attention", "full_attention"], "attention_chunk_size": 24},
    "mellum": {"layer_types": ["sliding_attention", "full_attention"]},
    "minimax_m2": {},
    "ministral3": {"rope_parameters": {**YARN, "llama_4_scaling_beta": 0.1}},
    "olmo3": {"layer_types": ["sliding_attention", "full_attention"]},
    "phi3": {},
    "seed_oss": {},
    "smollm3": {"no_rope_layers": [1, 0]},
}


TEXT = {name: size for name, size in SIZES.items() if not name.endswith(("experts", "_tok", "window"))}
IMAGES = {**dict.fromkeys(("hidden_size", "intermediate_size"), 32), "num_hidden_layers": 1, "num_attention_heads": 4}
COMPOSITE: dict[str, dict[str, Any]] = {
    "gemma3": {"text_config": TEXT, "vision_config": {**IMAGES, "image_size": 28, "patch_size": 14}},
    "llama4": {
        "text_config": {**TEXT, "num_local_experts": 2, "intermediate_size_mlp": 64},
        "vision_config": {**IMAGES, "image_size": 28, "vision_output_dim": 32, "projector_output_dim": 32},
    },
    "mistral3": {
        "text_config": {**TEXT, "model_type": "ministral3"},
        "vision_config": {**IMAGES, "model_type": "pixtral", "head_dim": 8, "image_size": 28, "patch_size": 14},
    },
}


def config_of(family: str, **changes: Any) -> Any:
    known = CONFIG_MAPPING[family]()
    return CONFIG_MAPPING[family](**{name: size for name, size in SIZES.items() if hasattr(known, name)} | changes)


def write(folder: Path, config: Any) -> PreTrainedModel:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = AutoModelForImageTextToText if hasattr(config, "vision_config") else auto_class(config, "here")[0]
    model: PreTrainedModel = loader.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "vision" not in name:
                parameter.copy_((0.5 if "embed" in name else 0.3) * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", [*EXACT, *COMPOSITE])
def test_a_family_runs_exactly(family: str, tmp_path: Path) -> None:
    of_text = family in EXACT
    config = config_of(family, **EXACT[family]) if of_text else CONFIG_MAPPING[family](**COMPOSITE[family])
    original = write(tmp_path, config)
    shape = read_generic_shape(json.loads((tmp_path / "config.json").read_text()), family)
    model = load_generic(tmp_path, 128, torch.device("cpu"), torch.float32)
    kept = model.kv_shape
    assert (shape.layers, shape.kv_heads, shape.head_dim) == (kept.num_layers, kept.num_kv_heads, kept.head_dim)
    tokens = [(7 * place) % 300 for place in range(100)]
    with torch.inference_mode():
        expected = original(torch.tensor([tokens]), use_cache=False).logits[0]
    workspace = model.new_workspace()
    for start, stop in ((0, 60), (60, 61), (40, 100)):  # beyond the windows, and back
        found = model.logits(Chunk(tokens[start:stop], start, workspace, stop - start))
        assert float((found - expected[start:stop]).abs().max() / expected.std()) < 1e-4


def test_tensors_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    write(tmp_path, config_of("granite"))
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(BadModel, match=r"lacks 1 tensors, such as 'model\.layers\.1\.mlp\.down_proj\.weight'"):
        load_generic(tmp_path, 128, torch.device("cpu"), torch.float32)


def test_a_model_whose_logits_depend_on_the_pieces_is_refused(tmp_path: Path) -> None:
    write(tmp_path, config_of("bert", is_decoder=False))  # each token sees those behind it
    with pytest.raises(BadModel, match="computes other logits for a text in pieces than at once"):
        load_generic(tmp_path, 128, torch.device("cpu"), torch.float32)
