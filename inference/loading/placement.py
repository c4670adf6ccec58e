"""The placement of a model: what runs it with `device auto`, and the dtype that it computes in; imports no torch.

The core loads by this plan, and `midfill doctor` and `midfill models` show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from inference.backends.cpu.library import BLOCK_FORMATS, choose_level, unavailable_reason, unsupported_reason
from inference.checkpoints.architecture import Architecture, ModelShape
from inference.checkpoints.checkpoint import Checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.checkpoints.weights import STAYING
from inference.loading.main_memory import main_memory
from inference.loading.memory_plan import DTYPE_BYTES, MemoryDemand, MemoryPlan, default_store_bytes, plan_memory
from inference.loading.options import EngineOptions, has_torch
from protocol.errors import BadInput, BadModel
from protocol.installation import TORCH_REMEDY
from protocol.messages import megabytes
from protocol.settings import Weights

BFLOAT16_CAPABILITY = (8, 0)
"""Compute capability of the first GPUs that compute in bfloat16 (Ampere); older ones have float16."""


def default_dtype(
    device: str, shape: ModelShape, *, may_use_kernel: bool, weights: Weights = "auto", capability: tuple[int, int] | None = None
) -> Literal["float32", "bfloat16", "float16"]:
    """The dtype for a model of this shape on the device; `capability` is a CUDA GPU's, if known.

    bfloat16 where it is fast: on GPUs, and with a CPU kernel that multiplies it. With torch a prompt's KV depends, by
    rounding, on its division into forwards. In float32 the difference is too small to change a suggestion; in bfloat16
    it can turn a near tie. On a GPU the speed is worth it; on a CPU only the kernel, which has no such difference, is.

    GPUs that are too old for bfloat16 compute in float16, or in float32 for int8 weights, which overflow float16.
    """
    if device.startswith("cuda") and capability is not None and capability < BFLOAT16_CAPABILITY:
        return "float32" if weights == "int8" else "float16"
    if not device.startswith("cpu"):
        return "bfloat16"
    return "bfloat16" if may_use_kernel and _kernel_multiplies_bfloat16(shape) else "float32"


def is_on_kernel(device: str, shape: ModelShape, dtype: str, *, may_use_kernel: bool, weights: Weights) -> bool:
    """Whether the CPU kernel computes a model of this shape."""
    if not device.startswith("cpu") or dtype == "float16" or weights == "fp8" or not may_use_kernel:
        return False
    return isinstance(shape, Architecture) and unsupported_reason(shape) is None and unavailable_reason() is None


def _kernel_multiplies_bfloat16(shape: ModelShape) -> bool:
    if not isinstance(shape, Architecture) or unsupported_reason(shape) is not None:
        return False
    return unavailable_reason() is None and choose_level(None) == "avx512_bf16"


Runner = Literal["CPU", "GPU", "all devices", "llama-server"]

FP8_CAPABILITY = (8, 9)  # Ada, the first GPUs that multiply float8; Hopper is 9.0
SMALL_BYTES = 2**28
"""Of a file: the CPU kernel computes a token of such a model in the time that a GPU needs to launch its kernels."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that the choice depends on.

    Attributes:
        has_gpu: with CUDA, that torch can use.
        fits_gpu: whether the GPU's free memory holds the model as torch computes it, with a workspace.
        is_quantized: whether it is a GGUF file with matrices of 8 bits or fewer, which torch dequantizes.
        file_bytes: of the files.
        on_kernel: whether the CPU kernel computes it.
        is_llama: whether it is of the Llama family, which midfill's own decoder computes, on one device.
        needs_own_engine: whether settings ask for what llama-server does not have.
        needs_cpu: whether only the CPU kernel has what settings ask for, or what the file's layers do.
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
    """The engine for the model, and why; `is_slow`: users should know it, since another choice is open to them."""

    runner: Runner
    why: str
    is_slow: bool = False

    def __str__(self) -> str:
        return f"{self.runner}: {self.why}"


def place(found: Situation) -> Placement:
    """The choice for a situation. Weights are never moved between memories without saying so: that takes seconds."""
    if not found.has_gpu:
        return Placement("CPU", "there is no GPU that torch can use")
    if found.is_quantized and not found.needs_own_engine:
        if found.on_kernel and found.file_bytes <= SMALL_BYTES:
            return Placement("CPU", "a model of this size is as fast on the CPU kernel")
        if found.llama_server:
            return Placement("llama-server", f"{found.llama_server} keeps the file's weights quantized on the GPU")
    if found.needs_cpu:
        return Placement("CPU", "the CPU kernel has these weights (a GPU has int4 with device cuda)")
    model = "the dequantized model" if found.is_quantized else "the model"
    if found.fits_gpu:
        return Placement("GPU", f"{model} fits the GPU's free memory")
    if found.is_llama:
        remedy = "install llama.cpp with its llama-server" if found.is_quantized else "choose weights int8 or fp8"
        faster = " and the CPU kernel is faster than weights that move" if found.on_kernel else ""
        return Placement("CPU", f"{model} does not fit the GPU's free memory,{faster}: {remedy}", is_slow=True)
    return Placement(
        "all devices",
        "the model does not fit the GPU's free memory, so it is spread over GPU, main memory and disk, which takes "
        "seconds for each token: choose a smaller model",
        is_slow=True,
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """The share of the machine that a plan takes, besides its main memory.

    Attributes:
        device: that the setting names, or what there is for `auto`: `cpu`, `mps`, `cuda` or `cuda:N`.
        gpu_free: free bytes of the GPU; None without one that torch can use.
        capability: of the GPU, if known.
        llama_server: the program, if it has a GPU; otherwise empty.
    """

    device: str = "cpu"
    gpu_free: int | None = None
    capability: tuple[int, int] | None = None
    llama_server: str = ""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How a model is loaded: by what, on which device, in which dtype, and how memory is divided.

    `memory` says nothing of a model that llama-server runs or that is spread over all devices.
    """

    placement: Placement
    device: str
    dtype: str
    demand: MemoryDemand
    memory: MemoryPlan

    @property
    def lack(self) -> str:
        """Why the model is not loaded: the memory that it needs, what is free, and a remedy; empty if it fits."""
        if self.memory.fits or self.placement.runner in ("llama-server", "all devices"):
            return ""
        remedy = "close other programs, choose a smaller model, or set weights to int8 or int4"
        if self.demand.on_gpu:
            remedy = "choose a smaller model or context, weights int8, or device cpu"
        elif not isinstance(self.demand.shape, Architecture):
            remedy = "close other programs, choose a smaller model or context, or run it in llama-server (the setting engine)"
        needed = f"about {megabytes(self.memory.least)} of {self.device}'s memory in {self.dtype}"
        return f"the model needs {needed}, and {megabytes(self.memory.usable)} are free for it: {remedy}"


def plan_load(options: EngineOptions, checkpoint: Checkpoint, machine: Machine) -> LoadPlan:
    """The plan by which a core loads a checkpoint; BadInput, with the value at fault and a remedy, if it cannot."""
    if options.device == "auto":
        placement = place(situation_of(options, checkpoint, machine))
        device = "cpu" if placement.runner == "CPU" else machine.device
    else:
        device = machine.device
        placement = Placement("GPU" if device.startswith("cuda") else "CPU", f"the setting device is {options.device}")
    dtype = _dtype(options, checkpoint.architecture, device, machine.capability)
    if problem := weights_problem(options.weights, device, dtype, machine.capability):
        raise BadInput(problem)
    demand = _demand(options, checkpoint, device, dtype)
    if _needs_kernel(checkpoint) and not demand.on_kernel and placement.runner != "llama-server":
        assert isinstance(demand.shape, Architecture)
        unsupported = unsupported_reason(demand.shape)
        reason = f"which does not support {unsupported}" if unsupported else unavailable_reason()
        raise BadModel(
            f"{checkpoint.path}: only the CPU kernel runs such a file, {reason or 'which the settings rule out'}: "
            "choose the model's safetensors files, or run it in llama-server (the setting engine)"
        )
    if placement.runner != "llama-server" and not has_torch() and _needs_torch(checkpoint, demand, options.weights):
        raise BadModel(f"{checkpoint.name} needs PyTorch here, and torch is not installed: {TORCH_REMEDY}")
    free = machine.gpu_free if device.startswith("cuda") else None
    if free is None:
        free = main_memory().available
    return LoadPlan(placement, device, dtype, demand, plan_memory(demand, free))


def _needs_kernel(checkpoint: Checkpoint) -> bool:
    """Whether nothing else here runs the file: transformers reads neither hybrid models from GGUF nor several parts."""
    shape = checkpoint.architecture
    if not isinstance(checkpoint, GgufCheckpoint) or not isinstance(shape, Architecture):
        return False
    return bool(shape.layer_kinds) or (shape.kernel_alone and len(checkpoint.headers) > 1)


def _needs_torch(checkpoint: Checkpoint, demand: MemoryDemand, weights: Weights) -> bool:
    """Whether PyTorch runs the model, keeps its state, or quantizes matrices for the CPU kernel."""
    if not demand.on_kernel or checkpoint.architecture.recurrent_layers:
        return True
    matrices = [tensor for file in demand.files for tensor in file.tensors.values() if len(tensor.shape) == 2]
    if weights == "int8" or weights == "int4":
        return any(tensor.kernel_type not in STAYING[weights] for tensor in matrices)
    return any(tensor.kernel_type is not None and tensor.type_name not in BLOCK_FORMATS for tensor in matrices)


def situation_of(options: EngineOptions, checkpoint: Checkpoint, machine: Machine) -> Situation:
    """The situation of a checkpoint on a machine."""
    shape, files = checkpoint.architecture, checkpoint.weights()
    fits = False
    if machine.gpu_free is not None:
        demand = _demand(options, checkpoint, "cuda", _dtype(options, shape, "cuda", machine.capability))
        fits = plan_memory(demand, machine.gpu_free).fits
    return Situation(
        has_gpu=machine.gpu_free is not None,
        fits_gpu=fits,
        is_quantized=isinstance(checkpoint, GgufCheckpoint)
        and any(tensor.kernel_type for file in files for tensor in file.tensors.values()),
        file_bytes=sum(file.size for file in files),
        on_kernel=_demand(options, checkpoint, "cpu", _dtype(options, shape, "cpu", None)).on_kernel,
        is_llama=isinstance(shape, Architecture) and not shape.kernel_alone,
        needs_own_engine=options.weights != "auto" or options.dtype != "auto",
        needs_cpu=options.weights == "int4" or _needs_kernel(checkpoint),
        llama_server=machine.llama_server,
    )


def weights_problem(weights: Weights, device: str, dtype: str, capability: tuple[int, int] | None) -> str:
    """Why weights cannot be quantized for the device, and a remedy; empty if they can."""
    on_gpu = device.startswith("cuda")
    if weights == "auto" or (device == "cpu" and weights != "fp8"):
        return ""
    if not on_gpu:
        kernel = "the CPU kernel or " if weights == "int4" else ""
        remedy = "choose weights int8 or auto" if weights == "int4" else "choose weights auto, or int8 or int4 on a CPU"
        return f"{weights} weights need {kernel}a CUDA GPU, and the model runs on {device}: {remedy}"
    if weights != "int4" and find_spec("torchao") is None:
        return f"{weights} weights on a GPU need the package torchao: install torchao>=0.18"
    if weights == "int8":
        overflow = "int8 weights are multiplied before they are scaled, which overflows float16"
        remedy = "choose dtype auto, bfloat16 or float32, or weights auto"
        return f"{overflow}: {remedy}" if dtype == "float16" else ""
    least = FP8_CAPABILITY if weights == "fp8" else BFLOAT16_CAPABILITY
    if capability is not None and capability < least:
        needed, found = (".".join(map(str, version)) for version in (least, capability))
        lacks = f"{weights} weights need a GPU of compute capability {needed} or more, and {device} has {found}"
        return f"{lacks}: choose weights auto or int8"
    if dtype != "bfloat16":
        return f"{weights} weights are multiplied in bfloat16, not in {dtype}: choose dtype auto or bfloat16"
    return ""


def _dtype(options: EngineOptions, shape: ModelShape, device: str, capability: tuple[int, int] | None) -> str:
    if options.dtype == "auto":
        return default_dtype(device, shape, may_use_kernel=options.kernel, weights=options.weights, capability=capability)
    if options.dtype not in DTYPE_BYTES:
        raise BadInput(f"unknown dtype {options.dtype!r}: choose auto, {', '.join(DTYPE_BYTES)}")
    return options.dtype


def _demand(options: EngineOptions, checkpoint: Checkpoint, device: str, dtype: str) -> MemoryDemand:
    shape, on_gpu = checkpoint.architecture, device.startswith("cuda")
    on_kernel = is_on_kernel(device, shape, dtype, may_use_kernel=options.kernel, weights=options.weights)
    states = shape.snapshot_bytes(DTYPE_BYTES[dtype])
    if on_kernel and isinstance(shape, Architecture):
        states = shape.kernel_snapshot_bytes
    return MemoryDemand(
        shape=shape,
        files=checkpoint.weights(),
        dtype=dtype,
        weights=options.weights,
        context_tokens=min(options.context_tokens, shape.max_positions),
        slots=options.slots,
        store_bytes=default_store_bytes(main_memory().total, on_gpu=on_gpu)
        if options.store_bytes is None
        else options.store_bytes,
        prefill_chunk=options.prefill_chunk,
        on_gpu=on_gpu,
        on_kernel=on_kernel,
        snapshot_bytes=states,
    )
