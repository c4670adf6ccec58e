"""Chooses what runs a model with `device auto`: a CPU, a GPU, all devices, or llama-server; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import psutil

from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.loading.default_dtype import default_dtype, is_on_kernel
from inference.loading.memory_plan import MemoryDemand, default_store_bytes, plan_memory
from inference.loading.options import EngineOptions

Runner = Literal["CPU", "GPU", "all devices", "llama-server"]

SMALL_BYTES = 2**28
"""Of a file: the CPU kernel computes a token of such a model in the time that a GPU needs to launch its kernels."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the choice depends on.

    Attributes:
        has_gpu: with CUDA, that torch can use.
        fits_gpu: whether the GPU's free memory holds the model as torch computes it, with a workspace.
        is_quantized: whether it is a GGUF file with matrices of 8 bits or fewer, which torch dequantizes.
        file_bytes: of the files.
        on_kernel: whether the CPU kernel computes it.
        is_llama: whether it is of the Llama family, which midfill's own decoder computes, on one device.
        needs_own_engine: whether settings ask for what llama-server does not have.
        needs_cpu: whether settings ask for what only the CPU kernel has.
        llama_server: the program, if it has a GPU; otherwise empty.
    """

    has_gpu: bool
    fits_gpu: bool
    is_quantized: bool
    file_bytes: int
    on_kernel: bool
    is_llama: bool
    needs_own_engine: bool = False
    needs_cpu: bool = False
    llama_server: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """What runs the model, and why; `is_slow`: users should know it, since another choice is open to them."""

    runner: Runner
    why: str
    is_slow: bool = False

    def __str__(self) -> str:
        return f"{self.runner}: {self.why}"


def place(found: Situation) -> Placement:
    """The choice for a situation. Weights are never moved between memories without saying so: that takes seconds."""
    if not found.has_gpu:
        return Placement("CPU", "there is no GPU that torch can use")
    if found.needs_cpu:
        return Placement("CPU", "only the CPU kernel has these weights")
    if found.is_quantized and not found.needs_own_engine:
        if found.on_kernel and found.file_bytes <= SMALL_BYTES:
            return Placement("CPU", "a model of this size is as fast on the CPU kernel")
        if found.llama_server:
            return Placement("llama-server", f"{found.llama_server} keeps the file's weights quantized on the GPU")
    model = "the dequantized model" if found.is_quantized else "the model"
    if found.fits_gpu:
        return Placement("GPU", f"{model} fits the GPU's free memory")
    if found.is_llama:
        remedy = "install llama.cpp with its llama-server" if found.is_quantized else "choose --weights int8 or fp8"
        faster = " and the CPU kernel is faster than weights that move" if found.on_kernel else ""
        return Placement("CPU", f"{model} does not fit the GPU's free memory,{faster}: {remedy}", is_slow=True)
    return Placement(
        "all devices",
        "the model does not fit the GPU's free memory, so it is spread over GPU, main memory and disk, which takes "
        "seconds for each token: choose a smaller model",
        is_slow=True,
    )


def situation_of(
    options: EngineOptions,
    checkpoint: Checkpoint,
    gpu_free: int | None,
    capability: tuple[int, int] | None = None,
    llama_server: str = "",
) -> Situation:
    """The situation of a checkpoint on a machine; `gpu_free`: free bytes of the GPU, None without one."""
    shape, files = checkpoint.architecture, checkpoint.weights()
    asked = None if options.dtype == "auto" else options.dtype
    fits = False
    if gpu_free is not None:
        chosen = default_dtype(
            "cuda", shape, may_use_kernel=options.kernel, weights=options.weights, capability=capability
        )
        fits = plan_memory(demand_of(options, checkpoint, "cuda", asked or chosen), gpu_free).fits
    on_cpu = asked or default_dtype("cpu", shape, may_use_kernel=options.kernel, weights=options.weights)
    return Situation(
        has_gpu=gpu_free is not None,
        fits_gpu=fits,
        is_quantized=isinstance(checkpoint, GgufCheckpoint)
        and any(tensor.kernel_type for file in files for tensor in file.tensors.values()),
        file_bytes=sum(file.size for file in files),
        on_kernel=is_on_kernel("cpu", shape, on_cpu, may_use_kernel=options.kernel, weights=options.weights),
        is_llama=isinstance(shape, Architecture),
        needs_own_engine=options.weights != "auto" or options.dtype != "auto",
        needs_cpu=options.weights == "int4",
        llama_server=llama_server,
    )


def demand_of(options: EngineOptions, checkpoint: Checkpoint, device: str, dtype: str) -> MemoryDemand:
    """The demand for memory on a type of device."""
    shape, on_gpu = checkpoint.architecture, device.startswith("cuda")
    return MemoryDemand(
        shape=shape,
        files=checkpoint.weights(),
        dtype=dtype,
        weights=options.weights,
        context_tokens=min(options.context_tokens, shape.max_positions),
        slots=options.slots,
        store_bytes=default_store_bytes(psutil.virtual_memory().total, on_gpu=on_gpu)
        if options.store_bytes is None
        else options.store_bytes,
        prefill_chunk=options.prefill_chunk,
        on_gpu=on_gpu,
        on_kernel=is_on_kernel(device, shape, dtype, may_use_kernel=options.kernel, weights=options.weights),
    )
