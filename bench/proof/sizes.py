"""The sizes that a proof runs at: those of a card, and tiny ones for a dry run on a CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inference.checkpoints.architecture import Architecture


def shape(
    layers: int,
    hidden: int,
    intermediate: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocabulary: int,
    *,
    tied: bool = True,
    qk_norm: bool = False,
) -> Architecture:
    """A Llama-family architecture of these sizes."""
    return Architecture(
        model_type="qwen3" if qk_norm else "qwen2",
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        norm_epsilon=1e-6,
        max_positions=8192,
        tied_embeddings=tied,
        qk_norm=qk_norm,
        rope_theta=10000.0,
        rope_type="default",
        attention_scale=head_dim**-0.5,
    )


MODELS = {
    "135M": shape(30, 576, 1536, 9, 3, 64, 49152),  # SmolLM2, the bundled model
    "0.5B": shape(24, 896, 4864, 14, 2, 64, 151936),  # Qwen2.5-Coder, as the next two
    "1.5B": shape(28, 1536, 8960, 12, 2, 128, 151936),
    "7B": shape(28, 3584, 18944, 28, 4, 128, 152064, tied=False),
}
TINY_MODELS = {"tiny": shape(2, 64, 96, 2, 2, 288, 8192)}

GEOMETRIES = {  # groups of 1, 2, 3, 6 and 7 heads, in the two head dimensions that models have
    "8/8x64": shape(4, 256, 512, 8, 8, 64, 512),
    "16/8x128 qk-norm": shape(4, 256, 512, 16, 8, 128, 512, qk_norm=True),
    "9/3x64": shape(4, 256, 512, 9, 3, 64, 512),
    "12/2x128": shape(4, 256, 512, 12, 2, 128, 512, tied=False),
    "14/2x64": shape(4, 256, 512, 14, 2, 64, 512),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the sections run; lengths in tokens, memory in bytes."""

    models: dict[str, Architecture]  # to time
    served: str  # of these: the one behind the engine
    small: str  # of these: the one that memory runs out for
    geometries: dict[str, Architecture]  # to compare with float64
    lengths: tuple[int, ...]  # new tokens of a forward
    resident: tuple[int, ...]  # tokens before them
    compared_s: float  # seconds of such comparisons, in a random order
    split_s: float  # seconds of those of split attention, within which another model is begun if its kernels can be compiled
    visible: tuple[int, ...]  # of timed forwards
    new: tuple[int, ...]  # tokens of timed forwards
    prefill: tuple[int, ...]  # tokens of timed prefills
    sequences: tuple[int, ...]  # in one forward
    context: int
    prefill_chunk: int  # 0: the default
    tiny_layers: int  # that are computed of the model `tiny`; 0: all
    requests: int  # of the recorded session
    served_requests: int  # of these, to the model that is served
    max_tokens: int  # of each of their answers
    most_recomputed: float  # share of a session's prompt tokens
    reused: int  # requests whose answers are compared with cold ones
    reuse_step: int  # of the recorded requests, one in so many is compared
    pages: int  # moved to main memory
    rounds: int  # of which the median counts
    copied_bytes: int
    product: int  # rows and columns of a square matrix
    ballast_leaves: float  # free workspaces, when memory is short
    room_bytes: int  # for the store and for forwards, beside these
    least_bytes: int  # of an allocation that is refused then


FULL = Sizes(
    models=MODELS,
    served="1.5B",
    small="135M",
    geometries=GEOMETRIES,
    lengths=(1, 2, 5, 16, 31, 32, 33, 256),
    resident=(0, 1, 31, 32, 33, 34, 63, 64, 65, 66, 511, 512, 513, 514, 2047, 2048, 2049),
    compared_s=21.0,
    split_s=26.0,
    visible=(512, 2048, 4096),
    new=(1, 4, 16),
    prefill=(256, 512, 1024, 2048, 4096),
    sequences=(1, 2, 4, 8),
    context=4608,
    prefill_chunk=0,
    tiny_layers=0,
    requests=400,
    served_requests=150,
    max_tokens=24,
    most_recomputed=0.1,  # by the tokens alone it is 0.05
    reused=40,
    reuse_step=8,
    pages=512,
    rounds=15,
    copied_bytes=4 * 2**30,
    product=8192,
    ballast_leaves=2.0,
    room_bytes=64 * 2**20,
    least_bytes=16 * 2**20,  # torch takes so much from the driver for each of these, and no more
)

DRY = Sizes(
    models=TINY_MODELS,
    served="tiny",
    small="tiny",
    geometries={"4/2x16": shape(2, 32, 48, 4, 2, 16, 96), "3/3x16": shape(2, 32, 48, 3, 3, 16, 96, qk_norm=True)},
    lengths=(2, 33),
    resident=(0, 48),
    compared_s=math.inf,
    split_s=math.inf,
    visible=(64,),
    new=(1, 4),
    prefill=(64,),
    sequences=(1, 2),
    context=256,
    prefill_chunk=128,
    tiny_layers=1,
    requests=4,
    served_requests=4,
    max_tokens=3,
    most_recomputed=0.6,  # windows of a few lines move more often
    reused=2,
    reuse_step=1,
    pages=8,
    rounds=1,
    copied_bytes=2**16,
    product=32,
    ballast_leaves=2.5,
    room_bytes=0,
    least_bytes=2**20,  # the simulated device does not count smaller ones
)
