from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from inference.backends.rotation import rotations
from inference.checkpoints.architecture import read_architecture

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 4096,
}
YARN = {"rope_type": "yarn", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {**LLAMA3, "original_max_position_embeddings": 512},
    "yarn": {**YARN, "original_max_position_embeddings": 512},
    "yarn of the whole context": YARN,
    "yarn of a small base": {**YARN, "rope_theta": 10.0, "original_max_position_embeddings": 64},
    "yarn between other turns": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    "yarn with a given scale": {**YARN, "attention_factor": 0.5},
    "yarn with two scales": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.5},
    "yarn that shrinks": {**YARN, "factor": 0.5},
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_frequencies_are_those_of_transformers(name: str) -> None:
    config = {**CONFIG, "rope_parameters": {"rope_theta": 1e4, **SCALINGS[name]}}
    theirs = LlamaConfig(**{key: value for key, value in config.items() if key != "model_type"})
    frequencies, scale = ROPE_INIT_FUNCTIONS[SCALINGS[name]["rope_type"]](theirs, torch.device("cpu"))
    cosines, sines = rotations(read_architecture(config, "here"), config, 2)
    np.testing.assert_allclose(cosines[0], scale, rtol=1e-6)
    np.testing.assert_allclose(np.arctan2(sines[1], cosines[1]), frequencies.numpy(), rtol=1e-5)
