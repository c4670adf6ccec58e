"""What runs a model with `device auto`: the whole choice as a table, and the facts that it is made from."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from inference.backends.cpu.library import MAX_GROUP, KernelUnavailable, levels, unavailable_reason, unsupported_reason
from inference.checkpoints.architecture import Architecture, ModelShape, read_architecture
from inference.checkpoints.checkpoint import open_checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.loading.engine import load_engine
from inference.loading.main_memory import MainMemory
from inference.loading.options import EngineOptions, Gpu
from inference.loading.placement import (
    SMALL_BYTES,
    Machine,
    Placement,
    Situation,
    default_dtype,
    place,
    plan_load,
    situation_of,
    weights_problem,
)
from inference.remote import connecting
from midfill.doctor.models import model as doctor_of_model
from protocol.errors import BadInput, BadModel, EngineUnavailable
from protocol.settings import BUNDLED_MODEL, Settings, Weights
from tests.inference.simulated_cuda import SimulatedCuda

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


BF16 = Situation(has_gpu=True, fits_gpu=True, is_quantized=False, file_bytes=3 * 10**9, on_kernel=True, is_llama=True)
GGUF = replace(BF16, is_quantized=True, file_bytes=10**9)
SERVER = "/usr/bin/llama-server"
GPU = Gpu("Some GPU", 24 * 2**30, 20 * 2**30, (8, 6))


@pytest.mark.parametrize(
    ("found", "runner", "why", "is_slow"),
    [
        (replace(BF16, has_gpu=False, fits_gpu=False), "CPU", "there is no GPU", False),
        (replace(GGUF, has_gpu=False, fits_gpu=False, llama_server=SERVER), "CPU", "there is no GPU", False),
        (BF16, "GPU", "the model fits", False),
        (replace(BF16, llama_server=SERVER), "GPU", "the model fits", False),
        (replace(BF16, on_kernel=False, is_llama=False), "GPU", "the model fits", False),
        (replace(BF16, fits_gpu=False), "CPU", "the CPU kernel is faster .* weights int8", True),
        (replace(BF16, fits_gpu=False, on_kernel=False), "CPU", "does not fit .* weights int8", True),
        (replace(BF16, fits_gpu=False, is_llama=False, on_kernel=False), "all devices", "seconds for each", True),
        (replace(BF16, needs_cpu=True, needs_own_engine=True), "CPU", "the CPU kernel has these", False),
        (replace(GGUF, llama_server=SERVER), "llama-server", f"{SERVER} keeps", False),
        (replace(GGUF, llama_server=SERVER, fits_gpu=False), "llama-server", "keeps", False),
        (replace(GGUF, llama_server=SERVER, is_llama=False, on_kernel=False), "llama-server", "keeps", False),
        (replace(GGUF, llama_server=SERVER, needs_own_engine=True), "GPU", "the dequantized model fits", False),
        (GGUF, "GPU", "the dequantized model fits", False),
        (replace(GGUF, fits_gpu=False), "CPU", "the dequantized model does not fit .* install llama.cpp", True),
        (replace(GGUF, file_bytes=SMALL_BYTES, llama_server=SERVER), "CPU", "as fast on the CPU kernel", False),
        (replace(GGUF, file_bytes=SMALL_BYTES, on_kernel=False), "GPU", "fits", False),
    ],
)
def test_what_runs_a_model(found: Situation, runner: str, why: str, *, is_slow: bool) -> None:
    placement = place(found)
    assert (placement.runner, placement.is_slow) == (runner, is_slow)
    assert re.search(why, placement.why)


def test_the_situation_is_read_from_the_files(tiny_checkpoint: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint))
    checkpoint = open_checkpoint(tiny_checkpoint, "tiny")
    large, none = Machine("cuda", 10**10, (9, 0), SERVER), Machine()
    found = situation_of(options, checkpoint, large)
    assert (found.has_gpu, found.fits_gpu, found.is_quantized, found.is_llama) == (True, True, False, True)
    assert not found.needs_own_engine
    assert not situation_of(options, checkpoint, replace(large, gpu_free=10**6)).fits_gpu
    assert not situation_of(options, checkpoint, none).has_gpu
    for asked in (replace(options, weights="int8"), replace(options, dtype="float32")):
        assert situation_of(asked, checkpoint, none).needs_own_engine
    assert situation_of(replace(options, weights="int4"), checkpoint, none).needs_cpu
    bundled = open_checkpoint(Path(__file__).parents[3] / "inference/models/midfill-135m", BUNDLED_MODEL)
    assert isinstance(bundled, GgufCheckpoint)
    assert situation_of(options, bundled, large).is_quantized


@pytest.mark.parametrize(
    ("changes", "machine", "planned"),
    [
        ({}, Machine(), ("CPU", "cpu")),
        ({}, Machine("cuda", 10**10, (9, 0)), ("GPU", "cuda")),
        ({}, Machine("cuda:0", 10**6, (9, 0)), ("CPU", "cpu")),
        ({"device": "cuda:1"}, Machine("cuda:1", 10**6, (9, 0)), ("GPU", "cuda:1")),
        ({"device": "cpu"}, Machine("cpu"), ("CPU", "cpu")),
        ({"device": "cuda"}, Machine("cuda"), ("GPU", "cuda")),  # the doctor, where there is none
    ],
)
def test_the_plan_is_that_of_the_device(
    tiny_checkpoint: Path, changes: dict[str, str], machine: Machine, planned: tuple[str, str]
) -> None:
    options = replace(EngineOptions(str(tiny_checkpoint)), **changes)  # type: ignore[arg-type]
    plan = plan_load(options, open_checkpoint(tiny_checkpoint, "tiny"), machine)
    assert (plan.placement.runner, plan.device) == planned
    assert plan.demand.on_gpu == plan.device.startswith("cuda")
    assert (plan.dtype == "bfloat16") or not plan.demand.on_gpu
    if machine.gpu_free and plan.demand.on_gpu:
        assert plan.memory.free == machine.gpu_free


def test_a_bad_dtype_is_named(tiny_checkpoint: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint), dtype="float8")
    with pytest.raises(BadInput, match="unknown dtype 'float8': choose auto, float32, bfloat16, float16"):
        plan_load(options, open_checkpoint(tiny_checkpoint, "tiny"), Machine())


@pytest.mark.parametrize(
    ("weights", "device", "dtype", "capability", "problem"),
    [
        ("auto", "cuda", "bfloat16", (9, 0), ""),
        ("int8", "cpu", "float32", None, ""),
        ("int4", "cpu", "float32", None, ""),
        ("fp8", "cpu", "bfloat16", (9, 0), "fp8 weights need a CUDA GPU, and the model runs on cpu: choose"),
        ("int8", "mps", "bfloat16", None, "int8 weights need a CUDA GPU, and the model runs on mps: choose"),
        ("int4", "mps", "bfloat16", None, "int4 weights need the CPU kernel or a CUDA GPU, .* runs on mps: choose"),
        ("int4", "cuda", "float16", (7, 5), r"int4 weights need .* capability 8\.0 or more, and cuda has 7\.5: choose"),
        ("int4", "cuda", "float32", (9, 0), "int4 weights are multiplied in bfloat16, not in float32: choose"),
        ("fp8", "cuda", "float16", (9, 0), "fp8 weights are multiplied in bfloat16, not in float16: choose"),
        ("fp8", "cuda", "bfloat16", (8, 6), "capability 8.9 or more, and cuda has 8.6: choose weights auto or int8"),
        ("fp8", "cuda", "bfloat16", (8, 9), ""),
        ("fp8", "cuda:1", "bfloat16", (12, 0), ""),
        ("int8", "cuda", "float32", (7, 5), ""),
        ("int8", "cuda", "float16", (9, 0), "int8 weights .* overflows float16: choose dtype auto, bfloat16"),
    ],
)
def test_weights_that_cannot_be_rounded_are_refused(
    weights: Weights, device: str, dtype: str, capability: tuple[int, int] | None, problem: str
) -> None:
    found = weights_problem(weights, device, dtype, capability)
    assert re.search(problem, found) if problem else not found


@pytest.mark.parametrize("weights", ["int8", "fp8"])
def test_a_missing_torchao_is_named(monkeypatch: pytest.MonkeyPatch, weights: Weights) -> None:
    monkeypatch.setattr("inference.loading.placement.find_spec", lambda _: None)
    assert weights_problem(weights, "cuda", "bfloat16", (9, 0)).endswith("install torchao>=0.18")
    assert not weights_problem("int8", "cpu", "bfloat16", None)


def test_a_model_that_does_not_fit_the_gpu_runs_on_the_cpu_and_says_so(simulated: SimulatedCuda, tiny_checkpoint: Path) -> None:
    simulated.total_bytes = 10**8  # less than the reserve for libraries
    engine = load_engine(EngineOptions(str(tiny_checkpoint), context_tokens=256, threads=1))
    assert engine.info.device == "cpu"
    assert engine.notice.startswith("runs on CPU: the model does not fit the GPU's free memory")
    assert simulated.kernels == 0
    with pytest.raises(BadModel, match=r"needs about 406 MB of cuda:0's memory in bfloat16, and 95 MB are free for it"):
        load_engine(EngineOptions(str(tiny_checkpoint), device="cuda", context_tokens=256, threads=1))
    assert simulated.kernels == 0


def test_a_model_that_does_not_fit_main_memory_is_not_begun_and_the_doctor_says_the_same(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.loading.placement.main_memory", lambda: MainMemory(2**30, 10**5))
    read: list[Path] = []
    monkeypatch.setattr("inference.loading.components.load_decoder", lambda checkpoint, *_: read.append(checkpoint))
    with pytest.raises(BadModel) as refused:
        load_engine(EngineOptions(str(tiny_checkpoint), device="cpu", threads=1))
    assert not read
    section = doctor_of_model(Settings(str(tiny_checkpoint), device="cpu", threads=1), ())
    assert [f"{tiny_checkpoint}: {problem}" for problem in section.problems] == [str(refused.value)]
    assert "and 0 MB are free for it: close other programs, choose a smaller model" in str(refused.value)


@pytest.mark.parametrize(("runner", "expected"), [("llama-server", "connect"), ("CPU", "load"), ("GPU", "load")])
def test_llama_server_is_started_where_it_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tiny_checkpoint: Path, runner: str, expected: str
) -> None:
    opened: list[tuple[str, str]] = []
    monkeypatch.setattr(connecting, "find_gpus", lambda: (GPU,))
    monkeypatch.setattr(connecting, "find_llama_server", lambda: SERVER)
    monkeypatch.setattr(connecting, "place", lambda _: Placement(runner, "it is a test"))  # type: ignore[arg-type]
    monkeypatch.setattr(connecting, "connect", lambda options, _: opened.append(("connect", options.engine)))
    monkeypatch.setattr(connecting, "load_engine", lambda options, *_: opened.append(("load", options.engine)))
    options = EngineOptions(str(tiny_checkpoint))
    connecting.open_engine(options)
    assert opened == [(expected, f"llama-server={SERVER}" if expected == "connect" else "local")]
    opened.clear()
    connecting.open_engine(replace(options, device="cuda"))  # the user has chosen
    assert opened == [("load", "local")]


def test_where_llama_server_fails_our_own_engine_runs_the_model(
    monkeypatch: pytest.MonkeyPatch, tiny_checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise EngineUnavailable("llama-server ended with status 1")

    monkeypatch.setattr(connecting, "find_gpus", lambda: (GPU,))
    monkeypatch.setattr(connecting, "find_llama_server", lambda: SERVER)
    monkeypatch.setattr(connecting, "place", lambda _: Placement("llama-server", "it is a test"))
    monkeypatch.setattr(connecting, "connect", fail)
    monkeypatch.setattr(connecting, "load_engine", lambda *_: "our own")
    assert connecting.open_engine(EngineOptions(str(tiny_checkpoint))) == "our own"  # type: ignore[comparison-overlap]
    assert "llama-server ended with status 1" in caplog.text
