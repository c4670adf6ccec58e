from __future__ import annotations

import pytest

from inference.backends.cpu.library import KernelUnavailable, levels, unavailable_reason
from inference.backends.cpu.support import MAX_GROUP, unsupported_reason
from inference.checkpoints.architecture import Architecture, ModelShape, read_architecture
from inference.loading.default_dtype import default_dtype
from protocol.settings import Weights

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 64,
}
LLAMA = read_architecture(CONFIG, "config.json")
OTHER = ModelShape(model_type="gpt2", layers=2, kv_heads=2, head_dim=32, max_positions=64)
ODD = read_architecture(CONFIG | {"head_dim": 48}, "config.json")


def test_a_gpu_computes_in_bfloat16() -> None:
    assert default_dtype("cuda", OTHER, may_use_kernel=False) == "bfloat16"
    assert default_dtype("cuda:1", LLAMA, may_use_kernel=True) == "bfloat16"


@pytest.mark.parametrize(("weights", "dtype"), [("auto", "float16"), ("int8", "float32")])
def test_a_gpu_before_ampere_has_no_bfloat16(weights: Weights, dtype: str) -> None:
    for capability, expected in (((7, 5), dtype), ((8, 0), "bfloat16")):
        found = default_dtype("cuda:0", LLAMA, may_use_kernel=True, weights=weights, capability=capability)
        assert found == expected


@pytest.mark.parametrize(
    ("shape", "may_use_kernel"), [(LLAMA, False), (OTHER, True), (ODD, True)], ids=["no kernel", "generic", "odd"]
)
def test_a_cpu_without_the_kernel_computes_in_float32(shape: ModelShape, may_use_kernel: bool) -> None:
    assert default_dtype("cpu", shape, may_use_kernel=may_use_kernel) == "float32"


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
def test_the_kernel_computes_in_bfloat16_where_the_cpu_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here = levels()
    expected = "bfloat16" if here[-1] == "avx512_bf16" else "float32"
    assert default_dtype("cpu", LLAMA, may_use_kernel=True) == expected
    monkeypatch.setenv("MIDFILL_KERNEL_LEVEL", here[0])
    assert default_dtype("cpu", LLAMA, may_use_kernel=True) == "float32"


def test_without_a_library_a_cpu_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise KernelUnavailable("not built")

    monkeypatch.setattr("inference.backends.cpu.library.load_library", missing)
    assert default_dtype("cpu", LLAMA, may_use_kernel=True) == "float32"


def test_what_the_kernel_was_not_made_for_is_named() -> None:
    assert unsupported_reason(LLAMA) is None
    assert "a head dimension of 48" in str(unsupported_reason(ODD))
    wide = read_architecture(CONFIG | {"num_attention_heads": 2 * (MAX_GROUP + 1), "head_dim": 32}, "config.json")
    assert isinstance(wide, Architecture)
    assert f"{MAX_GROUP + 1} attention heads" in str(unsupported_reason(wide))
