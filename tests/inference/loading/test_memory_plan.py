from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.checkpoints.architecture import read_architecture
from inference.checkpoints.checkpoint import find_checkpoint
from inference.checkpoints.weights import StoredTensor, WeightsFile
from inference.loading.memory_plan import GPU_RESERVE, KERNEL_BYTES, MemoryDemand, default_store_bytes, plan_memory, weights_bytes
from kv_store.snapshots import FEWEST_SNAPSHOTS, budget_of_a_slot
from protocol.errors import BadInput
from protocol.settings import BUNDLED_MODEL, Weights

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 64,
}
TENSORS = {
    "model.embed_tokens.weight": [300, 64],
    "model.layers.0.mlp.up_proj.weight": [128, 64],
    "model.norm.weight": [64],
    "lm_head.weight": [300, 64],
}
GB = 10**9


def demand(dtype: str = "bfloat16", stored: str = "F32", **config: object) -> MemoryDemand:
    tensors = {name: StoredTensor(stored, tuple(shape), 0, 0) for name, shape in TENSORS.items()}
    return MemoryDemand(
        shape=read_architecture(CONFIG | config, "config.json"),
        files=[WeightsFile(Path("model.safetensors"), b"", tensors)],
        dtype=dtype,
        weights="auto",
        context_tokens=1000,
        slots=0,
        store_bytes=0,
        prefill_chunk=256,
        on_gpu=True,
        on_kernel=False,
    )


@pytest.mark.parametrize("stored", ["F32", "BF16"])
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_weights_and_kv_count_in_the_dtype_that_they_have_in_memory(stored: str, dtype: str, size: int) -> None:
    plan = plan_memory(demand(dtype, stored), 10 * GB)
    assert plan.weights == size * (300 * 64 + 128 * 64 + 64 + 300 * 64)
    assert plan.workspace == size * 1000 * 2 * 2 * 2 * 16
    assert weights_bytes(demand(dtype, stored, tie_word_embeddings=True)) == size * (300 * 64 + 128 * 64 + 64)


@pytest.mark.parametrize(
    ("weights", "tied", "expected"),
    [
        ("int8", False, 2 * 300 * 64 + 128 * 68 + 2 * 64 + 300 * 68),
        ("int8", True, 2 * 300 * 64 + 128 * 68 + 2 * 64),
        ("fp8", True, 2 * 300 * 64 + 128 * 68 + 2 * 64 + 300 * 68),
    ],
)
def test_rounded_weights_take_a_byte_each(weights: Weights, tied: bool, expected: int) -> None:
    asked = replace(demand(tie_word_embeddings=tied), weights=weights)
    # a row of n values has n bytes and a scale of 4
    assert weights_bytes(asked) == expected


@pytest.mark.parametrize(
    ("stored", "size"), [("Q8_0", 34 / 32), ("Q6_K", 7 / 8), ("Q5_K", 6 / 8), ("F16", 2), ("Q4_1", 20 / 32), ("Q4_K", 20 / 32)]
)
def test_quantized_files_stay_so_on_a_cpu(stored: str, size: float) -> None:
    on_gpu = demand("bfloat16", stored)
    assert weights_bytes(replace(on_gpu, on_gpu=False, on_kernel=True)) == size * (300 * 64 + 128 * 64 + 64 + 300 * 64)
    assert weights_bytes(on_gpu) == weights_bytes(demand("bfloat16", "BF16"))


@pytest.mark.parametrize(
    ("weights", "tied", "expected"),
    [
        ("int8", False, 17 * (2 * 300 * 64 + 128 * 64) // 16 + 4 * 64),
        ("int8", True, 17 * (300 * 64 + 128 * 64) // 16 + 4 * 64),
        ("int4", False, 17 * (2 * 300 * 64) // 16 + 5 * 128 * 64 // 8 + 4 * 64),
        ("int4", True, 17 * (300 * 64) // 16 + 5 * 128 * 64 // 8 + 4 * 64),
    ],
)
def test_the_kernel_quantizes_by_groups_and_the_embedding_too(weights: Weights, tied: bool, expected: int) -> None:
    assert weights_bytes(replace(demand(tie_word_embeddings=tied), weights=weights, on_gpu=False)) == expected


@given(
    free=st.integers(0, 3 * GB),
    store_bytes=st.integers(0, 4 * GB),
    slots=st.integers(0, 16),
    context_tokens=st.integers(64, 10**6),
)
def test_a_plan_that_fits_adds_up_to_no_more_than_is_free(free: int, store_bytes: int, slots: int, context_tokens: int) -> None:
    asked = replace(demand(), store_bytes=store_bytes, slots=slots, context_tokens=context_tokens)
    plan = plan_memory(asked, free)
    total = plan.weights + plan.forwards + plan.slots * (plan.workspace + plan.graphs) + plan.store
    if slots == 0:
        assert 1 <= plan.slots <= 8
        assert total <= plan.usable <= free or not plan.fits
    else:
        assert plan.slots == slots
        assert total <= plan.usable or plan.store == 0
    assert 1 <= plan.kept <= max(1, plan.slots)
    assert 0 <= plan.store <= store_bytes
    assert plan.forwards >= GPU_RESERVE


@pytest.mark.parametrize("gigabytes", [4, 8, 16, 24, 64, 1024])
def test_by_default_the_bundled_model_leaves_a_laptop_to_other_programs(gigabytes: int) -> None:
    checkpoint, memory = find_checkpoint(BUNDLED_MODEL), gigabytes * 2**30
    store = default_store_bytes(memory, on_gpu=False)
    asked = MemoryDemand(
        checkpoint.architecture, checkpoint.weights(), "float32", "auto", 4096, 0, store, 256, on_gpu=False, on_kernel=True
    )
    plan = plan_memory(asked, memory // 2)
    assert (plan.slots >= 2, plan.store) == (True, store)
    assert store <= memory // 20
    if gigabytes <= 8:
        assert plan.kept == 1
        assert plan.in_use - plan.forwards <= 420 * 10**6  # the process takes 120 MB more, 350 with torch
    assert plan.in_use <= memory // 10 or gigabytes < 8


def test_a_gpu_keeps_what_it_has_room_for() -> None:
    store = default_store_bytes(8 * 2**30, on_gpu=True)
    plan = plan_memory(replace(demand(), store_bytes=store, on_gpu=True), 10 * GB)
    assert (store, plan.kept) == (2 * 2**30, plan.slots)
    assert plan_memory(replace(demand(), slots=5), 10 * GB).kept == 5


def test_workspaces_come_before_the_store() -> None:
    asked = replace(demand(), store_bytes=8 * GB, on_gpu=False)
    roomy = plan_memory(asked, 10 * GB)
    plan = plan_memory(asked, roomy.least + 2 * roomy.workspace + 12345)
    assert (plan.slots, plan.store, plan.fits) == (3, 12345, True)
    assert not plan_memory(asked, roomy.least - 1).fits


def test_a_gpu_is_not_planned_to_the_last_byte() -> None:
    least = plan_memory(demand(), GB).least
    assert plan_memory(demand(), int(least / 0.94)).fits
    assert not plan_memory(demand(), int(least / 0.96)).fits


def test_graphs_take_what_was_measured() -> None:
    estimated, measured = plan_memory(demand(), GB), plan_memory(replace(demand(), graph_bytes=5 * 10**6), GB)
    assert estimated.graphs == 3 * (2 * 24 + 18) * KERNEL_BYTES
    assert measured.graphs == 15 * 10**6
    assert measured.least - estimated.least == measured.graphs - estimated.graphs
    assert plan_memory(replace(demand(), on_gpu=False), GB).graphs == 0


def test_snapshots_have_room_in_workspaces_and_a_share_of_the_store() -> None:
    without = plan_memory(replace(demand(), store_bytes=GB), 10 * GB)
    snapshot = without.workspace // FEWEST_SNAPSHOTS  # so that those of a prompt take as much as its KV
    planned = plan_memory(replace(demand(), store_bytes=GB, snapshot_bytes=snapshot), 10 * GB)
    assert planned.workspace == without.workspace + budget_of_a_slot(snapshot)
    assert (without.snapshots, planned.snapshots) == (0, planned.store // 2)


@pytest.mark.parametrize(("free", "on_gpu", "expected"), [(GB, True, 2048), (50 * 10**6, True, 512), (GB, False, 256)])
def test_a_gpu_takes_larger_chunks_if_they_take_little_memory(free: int, on_gpu: bool, expected: int) -> None:
    plan = plan_memory(replace(demand(), context_tokens=4096, on_gpu=on_gpu), free)
    assert plan.prefill_chunk == expected


def test_fewer_slots_than_none_are_refused() -> None:
    with pytest.raises(BadInput, match="slots must be 0 or more, not -1"):
        plan_memory(replace(demand(), slots=-1), GB)


Q, MLP = "model.layers.0.self_attn.{}_proj.weight", "model.layers.0.mlp.{}_proj.weight"


@pytest.mark.parametrize(
    ("value", "on_kernel", "expected"),
    [
        ("Q4_K", True, 5 / 8),  # the two are fused as int4
        ("Q4_0", True, 5 / 8),
        ("Q6_K", True, 8.5 / 8),  # int8 for both, since no smaller type represents the two
        ("Q4_K", False, 2),  # without the kernel they are dequantized to bfloat16
        ("Q6_K", False, 2),
    ],
)
def test_quantized_files_count_as_what_computes_them_has_them(value: str, on_kernel: bool, expected: float) -> None:
    tensors = {MLP.format(name): StoredTensor(of, (256, 256), 0, 0) for name, of in (("gate", "Q4_K"), ("up", value))}
    files = [WeightsFile(Path("model.gguf"), b"", tensors)]
    asked = replace(demand(), files=files, on_gpu=False, on_kernel=on_kernel)
    assert weights_bytes(asked) == 2 * int(256 * 256 * expected)


@pytest.mark.parametrize(
    ("types", "bytes_each"),
    [(("Q4_K", "Q4_K", "Q6_K"), (5 + 5 + 7) / 8), (("Q4_0",) * 3, 3 * 4.5 / 8)],  # Q4_0 alone has no minima
)
def test_queries_keys_and_values_keep_their_types(types: tuple[str, ...], bytes_each: float) -> None:
    named = zip("qkv", types, strict=True)
    tensors = {Q.format(name): StoredTensor(stored, (256, 256), 0, 0) for name, stored in named}
    files = [WeightsFile(Path("model.gguf"), b"", tensors)]
    assert weights_bytes(replace(demand(), files=files, on_gpu=False, on_kernel=True)) == 256 * 256 * bytes_each
