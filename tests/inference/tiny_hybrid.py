"""Writes a tiny hybrid model with random weights as a GGUF file: short convolutions and attention, as LFM2 has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.inference.tiny_gguf import tokenizer_fields, write_file

HIDDEN, INNER, HEADS, KV_HEADS = 64, 128, 4, 2
KEPT = 3  # of a convolution
LAYERS = ("conv", "attention", "conv", "attention")


def write_hybrid(path: Path, tokenizer: Path) -> Path:
    """A GGUF file of the architecture lfm2, with the tokenizer of a tokenizer.json."""
    fields = tokenizer_fields(tokenizer)
    vocabulary = len(fields["tokenizer.ggml.tokens"])
    sizes = {
        "block_count": len(LAYERS),
        "context_length": 8192,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "vocab_size": vocabulary,
        "attention.head_count": HEADS,
        "attention.head_count_kv": [KV_HEADS if layer == "attention" else 0 for layer in LAYERS],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "shortconv.l_cache": KEPT,
    }
    shapes = {"token_embd": (vocabulary, HIDDEN), "token_embd_norm": (HIDDEN,)}
    for number, layer in enumerate(LAYERS):
        mixing = (
            {
                "shortconv.conv": (HIDDEN, KEPT),
                "shortconv.in_proj": (3 * HIDDEN, HIDDEN),
                "shortconv.out_proj": (HIDDEN,) * 2,
            }
            if layer == "conv"
            else {
                "attn_q": (HIDDEN, HIDDEN),
                "attn_output": (HIDDEN, HIDDEN),
                **dict.fromkeys(("attn_k", "attn_v"), (HIDDEN // HEADS * KV_HEADS, HIDDEN)),
                **dict.fromkeys(("attn_q_norm", "attn_k_norm"), (HIDDEN // HEADS,)),
            }
        )
        widths = {"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER)}
        norms = dict.fromkeys(("attn_norm", "ffn_norm"), (HIDDEN,))
        shapes |= {f"blk.{number}.{name}": shape for name, shape in {**mixing, **widths, **norms}.items()}
    draw = np.random.default_rng(0)
    tensors = {
        f"{name}.weight": (
            np.ones(shape, np.float32)
            if "norm" in name
            else draw.normal(0, 0.5, shape).astype(np.float32) / shape[-1] ** (name != "token_embd" and 0.5),
            "F32",
        )
        for name, shape in shapes.items()
    }
    named = {"general.architecture": "lfm2"} | {f"lfm2.{key}": value for key, value in sizes.items()}
    return write_file(path, named | fields, tensors)
