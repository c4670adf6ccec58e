"""How to load a model: one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from inference.text.fim import AUTO
from inference.text.healing import HealingMode
from protocol.settings import BUNDLED_MODEL, Weights

DTypeName = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to load a model; "auto" and None stand for what suits the model and the machine."""

    model: str = BUNDLED_MODEL
    device: str = "auto"
    dtype: DTypeName = "auto"
    context_tokens: int | None = None  # longest prompt plus suggestion
    store_budget_bytes: int = 2**30  # of KV, on the device
    host_budget_bytes: int = 4 * 2**30  # of KV in main memory, where that is not the device's
    cache_folder: Path | None = None  # keeps KV, which tells of the text, across restarts
    cache_budget_bytes: int = 4 * 2**30
    prefill_chunk: int = 256  # tokens per forward, and so how long a cancellation, or another request, may wait
    slots: int | None = None  # workspaces: requests at work together; None takes as many as suit the store's budget
    batching: bool = True  # requests share forwards, as many as there are slots
    speculation: bool = True  # guesses at the text are verified in one forward
    threads: int | None = None  # of the CPU; None takes all cores for the kernel, half for torch
    exact: bool = False  # cached and cold logits the same to the bit, at the price of larger forwards
    fim_format: str = AUTO  # the name of one of inference.text.fim's, where it is not to be recognised
    healing: HealingMode = "auto"  # "auto" heals unless the checkpoint says that fragments suffice
    weights: Weights = "auto"  # int8 and fp8 quantize them: `backends.llama.quantized`, on a CPU the kernel itself
    kernel: bool = True  # the CPU's, where it can be had
