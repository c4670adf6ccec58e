"""The rotations of positions (RoPE): cosines and sines for every position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inference.checkpoints.architecture import DIVIDED, Architecture
from protocol.errors import bad_model

Floats = NDArray[np.float32]


def rotations(architecture: Architecture, config: Mapping[str, Any], positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines of every position, each [positions, turned / 2]; angles are computed in float32."""
    frequencies, scale = _inverse_frequencies(architecture, config)
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies)
    return np.cos(angles) * np.float32(scale), np.sin(angles) * np.float32(scale)


def _inverse_frequencies(architecture: Architecture, config: Mapping[str, Any]) -> tuple[Floats, float]:
    """Frequencies [turned / 2] and the scale of the embedding, by transformers' rules if RoPE is scaled."""
    if architecture.rope_type in ("default", DIVIDED):
        exponents = np.arange(0, architecture.turned, 2, dtype=np.float32) / np.float32(architecture.turned)
        divisors = config["rope_parameters"]["divisors"] if architecture.rope_type == DIVIDED else 1.0
        powers = np.power(np.float32(architecture.rope_theta), exponents, dtype=np.float32)
        return np.float32(1) / (powers * np.asarray(divisors, np.float32)), 1.0
    import torch
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    settings = {key: value for key, value in config.items() if key != "model_type"}
    with bad_model(f"RoPE of type {architecture.rope_type!r} cannot be computed"):
        parsed = AutoConfig.for_model(architecture.model_type, **settings)
        frequencies, scale = ROPE_INIT_FUNCTIONS[architecture.rope_type](parsed, torch.device("cpu"))
    return frequencies.float().numpy(), float(scale)
