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
    "Gemma2": ("Gemma2ForCausalLM", {**BLOCKS, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 24}),
    "Falcon": ("FalconForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "multi_query": True}),
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
HYBRID = {**BLOCKS, "num_hidden_layers": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
DELTA_RULE = {
    **HYBRID,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 32}
SHORT_CONVOLUTIONS = {**HYBRID, "layer_types": ["conv", "conv", "full_attention", "conv"], "conv_L_cache": 3}
RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen3Next": ("Qwen3NextForCausalLM", {**DELTA_RULE, **EXPERTS, "head_dim": 8}),
    "Qwen3_5Text": ("Qwen3_5ForCausalLM", {**DELTA_RULE, "head_dim": 8}),
    "Qwen3_5MoeText": ("Qwen3_5MoeForCausalLM", {**DELTA_RULE, **EXPERTS, "head_dim": 8}),
    "GraniteMoeHybrid": (
        "GraniteMoeHybridForCausalLM",
        {
            **HYBRID,
            **MAMBA,
            "layer_types": ["mamba", "mamba", "attention", "mamba"],
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 64,
        },
    ),
    "Lfm2": ("Lfm2ForCausalLM", SHORT_CONVOLUTIONS),
    "Lfm2Moe": ("Lfm2MoeForCausalLM", {**SHORT_CONVOLUTIONS, **EXPERTS, "num_dense_layers": 1}),
    "NemotronH": (
        "NemotronHForCausalLM",
        {
            **HYBRID,
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"],
            "head_dim": 8,
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "ssm_state_size": 8,
            "n_groups": 1,
            "chunk_size": 32,
        },
    ),
    "FalconH1": ("FalconH1ForCausalLM", {**HYBRID, **MAMBA, "mamba_d_ssm": 64}),
    "OlmoHybrid": ("OlmoHybridForCausalLM", {**DELTA_RULE, "linear_num_key_heads": 4, "linear_value_head_dim": 16}),
    "Jamba": (
        "JambaForCausalLM",
        {
            **HYBRID,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "attn_layer_period": 4,
            "attn_layer_offset": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
        },
    ),
    "Mamba2": (
        "Mamba2ForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_heads": 4,
            "head_dim": 16,
            "state_size": 8,
            "n_groups": 1,
            "chunk_size": 32,
        },
    ),
}
"""Families with recurrent layers, most of them beside attention."""
WIDE = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
ON_KERNEL: dict[str, tuple[str, dict[str, Any]]] = {
    "Lfm2": ("Lfm2ForCausalLM", {**SHORT_CONVOLUTIONS, **WIDE}),
    "Qwen3_5Text": (
        "Qwen3_5ForCausalLM",
        {**DELTA_RULE, **WIDE, "head_dim": 128, "linear_key_head_dim": 64, "linear_value_head_dim": 64},
    ),
}
"""Those that the CPU kernel computes, in shapes that it supports."""
END = {"bos_token_id": 600, "eos_token_id": 600, "pad_token_id": 600}


def make_model(kind: str, *, recurrent: bool = False, on_kernel: bool = False) -> PreTrainedModel:
    recurrent |= on_kernel
    model_class, config = (ON_KERNEL if on_kernel else RECURRENT if recurrent else ARCHITECTURES)[kind]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    settings = getattr(transformers, f"{kind}Config")(vocab_size=VOCABULARY, **END, **config)
    model: PreTrainedModel = getattr(transformers, model_class)(settings).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if recurrent and parameter.dim() > 1 and "A_log" not in name:
                scale = 0.5 if "embed" in name else 0.3 if "lm_head" in name else 0.5 * parameter.shape[-1] ** -0.5
                parameter.copy_(scale * torch.randn_like(parameter))
            elif not recurrent and parameter.dim() > 1 and "embed" not in name and "wte" not in name:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    return model


def write_model(folder: Path, kind: str, *, recurrent: bool = False, on_kernel: bool = False) -> Path:
    """A checkpoint with a tokenizer that is not trained on fragments, so that healing is at work too."""
    folder.mkdir(parents=True, exist_ok=True)
    assert write_tokenizer(folder / "tokenizer.json") == VOCABULARY
    make_model(kind, recurrent=recurrent, on_kernel=on_kernel).save_pretrained(folder)
    return folder
