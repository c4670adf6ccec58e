"""The recurrent states of hybrid models in GGUF files: how large a copy of them is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inference.checkpoints.gguf.metadata import GgufHeader

FLOAT_BYTES = 4


def state_bytes(header: GgufHeader) -> int:
    """Bytes of one copy of all layers' states, in float32 as llama.cpp keeps them; 0 for attention alone.

    At most: where the metadata do not tell the layers with a state from those with neither, both count.
    """
    sizes = {key.partition(".")[2]: value for key, value in header.metadata.items()}
    convolved = max(0, _size(sizes, "ssm.conv_kernel") - 1)
    if kept := _size(sizes, "shortconv.l_cache"):  # LFM2
        values = _size(sizes, "embedding_length") * (kept - 1)
    elif head := _size(sizes, "kda.head_dim"):  # Kimi Linear
        values = _size(sizes, "attention.head_count") * head * (3 * convolved + head)
    else:  # Mamba, and the gated delta rule of Qwen
        inner, state = _size(sizes, "ssm.inner_size"), _size(sizes, "ssm.state_size")
        values = convolved * (inner + 2 * _size(sizes, "ssm.group_count") * state) + state * inner
    return FLOAT_BYTES * values * _layers(sizes)


def _layers(sizes: Mapping[str, Any]) -> int:
    """The layers that may have a state: those without keys and values where the file tells them, or else all."""
    layers, kv_heads = _size(sizes, "block_count"), sizes.get("attention.head_count_kv")
    if isinstance(kv_heads, tuple) and 0 in kv_heads:
        return kv_heads.count(0)
    interval = _size(sizes, "full_attention_interval")
    return layers - layers // interval if interval else layers


def _size(sizes: Mapping[str, Any], key: str) -> int:
    """A size, the largest of several layers'; 0 for anything else."""
    value = sizes.get(key)
    several = value if isinstance(value, tuple) else (value,)
    return max((each for each in several if isinstance(each, int) and each > 0), default=0)
