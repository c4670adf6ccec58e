"""The rotations of positions (RoPE): cosines and sines for every position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inference.checkpoints.architecture import DIVIDED, Architecture, rope_settings
from protocol.errors import bad_model

Floats = NDArray[np.float32]


def rotations(architecture: Architecture, config: Mapping[str, Any], positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines of every position, each [positions, turned / 2]; angles are computed in float32."""
    rope = {"original_max_position_embeddings": config.get("max_position_embeddings"), **_given(rope_settings(config))}
    with bad_model(f"RoPE of type {architecture.rope_type!r} cannot be computed"):
        frequencies = _frequencies(architecture, rope)
        scale = np.float32(_yarn_scale(rope) if architecture.rope_type == "yarn" else 1.0)
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies)
    return np.cos(angles) * scale, np.sin(angles) * scale


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _frequencies(architecture: Architecture, rope: Mapping[str, Any]) -> Floats:
    """Radians per position [turned / 2], rounded as transformers does."""
    exponents = np.arange(0, architecture.turned, 2, dtype=np.float32) / np.float32(architecture.turned)
    trained: Floats = np.float32(1) / np.power(np.float64(architecture.rope_theta), exponents).astype(np.float32)
    if architecture.rope_type == "default":
        return trained
    if architecture.rope_type == DIVIDED:
        return np.divide(trained, np.asarray(rope["divisors"], np.float32))
    kept = _kept(architecture, rope, trained)
    scaled: Floats = (1 - kept) * (trained / np.float32(rope["factor"])) + kept * trained
    return scaled


def _kept(architecture: Architecture, rope: Mapping[str, Any], trained: Floats) -> Floats:
    """From 0, where scaling divides a frequency by `factor`, to 1, where it leaves it alone: [turned / 2].

    It leaves alone what turns often within the context of the training; llama3 and yarn pass over in between.
    """
    if architecture.rope_type == "llama3":
        turns = rope["original_max_position_embeddings"] / (2 * math.pi / trained)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        return _share((turns - low) / (high - low))
    return 1 - _yarn_ramp(architecture, rope) if architecture.rope_type == "yarn" else np.zeros_like(trained)


def _yarn_ramp(architecture: Architecture, rope: Mapping[str, Any]) -> Floats:
    """1 - `_kept`, for yarn."""

    def place(turns: float) -> float:
        """Of the frequency that turns so often, among all of them."""
        wavelength = rope["original_max_position_embeddings"] / (turns * 2 * math.pi)
        return architecture.turned * math.log(wavelength) / (2 * math.log(architecture.rope_theta))

    first, last = place(rope.get("beta_fast") or 32), place(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, architecture.turned - 1)
    places = np.arange(architecture.turned // 2, dtype=np.float32)
    return _share((places - first) / (last - first if last != first else 0.001))


def _share(values: Floats) -> Floats:
    return np.clip(values, np.float32(0), np.float32(1))


def _yarn_scale(rope: Mapping[str, Any]) -> float:
    """What cosines and sines are multiplied by."""

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(rope["factor"]) + 1 if rope["factor"] > 1 else 1.0

    if "attention_factor" in rope:
        return float(rope["attention_factor"])
    above, below = rope.get("mscale"), rope.get("mscale_all_dim")
    return scale(above) / scale(below) if above and below else scale(1.0)
