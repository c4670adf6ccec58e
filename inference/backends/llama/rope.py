"""Rotary position embeddings: computes a model's tables, and rotates queries and keys by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from inference.checkpoints.architecture import DIVIDED, Architecture
from protocol.errors import BadModel


def rotation_tables(
    architecture: Architecture, config: Mapping[str, Any], positions: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, each [positions, head_dim], with both halves of a row equal.

    Angles are computed in float32 on the CPU, whatever the dtype of the tables.
    """
    frequencies, scale = _inverse_frequencies(architecture, config)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return (angles.cos() * scale).to(device, dtype), (angles.sin() * scale).to(device, dtype)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotates x [heads, tokens, head_dim] by tables [tokens, head_dim], in the layout of Hugging Face checkpoints."""
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


def _inverse_frequencies(architecture: Architecture, config: Mapping[str, Any]) -> tuple[Tensor, float]:
    """Frequencies [head_dim / 2] and the scale of the embedding, by transformers' rules if RoPE is scaled."""
    if architecture.rope_type in ("default", DIVIDED):
        exponents = torch.arange(0, architecture.head_dim, 2, dtype=torch.float32) / architecture.head_dim
        divisors = config["rope_parameters"]["divisors"] if architecture.rope_type == DIVIDED else 1.0
        return 1.0 / (architecture.rope_theta**exponents * torch.tensor(divisors)), 1.0
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if architecture.rope_type not in ROPE_INIT_FUNCTIONS:
        raise BadModel(
            f"RoPE of type {architecture.rope_type!r} is not supported: choose one of {', '.join(ROPE_INIT_FUNCTIONS)}"
        )
    settings = {key: value for key, value in config.items() if key != "model_type"}
    parsed = AutoConfig.for_model(architecture.model_type, **settings)
    frequencies, scale = ROPE_INIT_FUNCTIONS[architecture.rope_type](parsed, torch.device("cpu"))
    return frequencies.float(), float(scale)
