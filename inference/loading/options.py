"""The options for loading a model, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from inference.text.fim import AUTO
from inference.text.healing import HealingMode
from protocol.settings import BUNDLED_MODEL, LOCAL_ENGINE, Weights

DTypeName = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options for loading a model; "auto" and None choose by model and machine."""

    model: str = BUNDLED_MODEL
    engine: str = LOCAL_ENGINE  # or the address of a server: `inference.remote.address`
    engine_key: str = field(default="", repr=False)
    device: str = "auto"
    dtype: DTypeName = "auto"
    context_tokens: int | None = None  # longest prompt plus completion
    store_budget_bytes: int = 2**30  # of KV, on the device
    host_budget_bytes: int = 4 * 2**30  # of KV in main memory, behind a GPU
    cache_folder: Path | None = None  # keeps KV across restarts; KV reveals the text
    cache_budget_bytes: int = 4 * 2**30
    prefill_chunk: int = 256  # tokens per forward, which bounds how long a cancellation or another request waits
    slots: int | None = None  # workspaces: requests at work together; None chooses by the store's budget
    batching: bool = True  # requests share forwards, as many as there are slots
    speculation: bool = True  # drafts are verified in one forward
    threads: int | None = None  # of the CPU; None uses all cores for the kernel, half of them for torch
    exact: bool = False  # cached and cold logits are bitwise equal, at the cost of larger forwards
    fim_format: str = AUTO  # a name from inference.text.fim; AUTO recognizes the format
    healing: HealingMode = "auto"  # "auto" heals unless fragments suffice for the model
    weights: Weights = "auto"  # quantized by the CPU kernel, or on a GPU by `backends.llama.quantized`
    kernel: bool = True  # the CPU kernel, if available
