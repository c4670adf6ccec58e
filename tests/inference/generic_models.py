"""Tiny random models of architectures outside the Llama family, made by transformers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from tests.inference.tiny import write_tokenizer

VOCABULARY = 605
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
BLOCKS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2": ("GPT2LMHeadModel", GPT),
    "GPTBigCode": ("GPTBigCodeForCausalLM", GPT),  # StarCoder, Granite code
    "Starcoder2": ("Starcoder2ForCausalLM", {**BLOCKS, "num_key_value_heads": 2, "sliding_window": 24}),
    "GPTNeoX": ("GPTNeoXForCausalLM", BLOCKS),
    "Phi": ("PhiForCausalLM", BLOCKS),
    "Gemma2": (
        "Gemma2ForCausalLM",
        {**BLOCKS, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 24},
    ),
    "Falcon": (
        "FalconForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "multi_query": True},
    ),
    "Bloom": ("BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "Qwen3Moe": (
        "Qwen3MoeForCausalLM",
        {
            **BLOCKS,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
        },
    ),
    "GraniteMoeHybrid": (  # Granite 4 micro: a class for layers with a state, and a model that has none
        "GraniteMoeHybridForCausalLM",
        {
            **BLOCKS,
            "num_key_value_heads": 2,
            "layer_types": ["attention", "attention"],
            "position_embedding_type": "rope",
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 64,
            "mamba_n_heads": 4,
            "mamba_d_head": 16,
        },
    ),
}
END = {"bos_token_id": 600, "eos_token_id": 600, "pad_token_id": 600}


def make_model(kind: str) -> PreTrainedModel:
    model_class, config = ARCHITECTURES[kind]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    settings = getattr(transformers, f"{kind}Config")(vocab_size=VOCABULARY, **END, **config)
    model: PreTrainedModel = getattr(transformers, model_class)(settings).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name and "wte" not in name:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    return model


def write_model(folder: Path, kind: str) -> Path:
    """A checkpoint with a tokenizer that is not trained on fragments, so that healing is at work too."""
    folder.mkdir(parents=True, exist_ok=True)
    assert write_tokenizer(folder / "tokenizer.json") == VOCABULARY
    make_model(kind).save_pretrained(folder)
    return folder
