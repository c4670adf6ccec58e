"""The options for loading a model, as one frozen value."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path

from protocol.settings import CoreSettings


@dataclass(frozen=True, slots=True)
class EngineOptions(CoreSettings):
    """The core's settings, and what no setting says; "auto" and 0 choose by model and machine."""

    _: KW_ONLY
    store_budget_bytes: int | None = None  # of KV on the device; None means `store_mb`
    host_budget_bytes: int = 4 * 2**30  # of KV in main memory, behind a GPU; at most an eighth of that memory
    cache_folder: Path | None = None  # keeps KV across restarts; KV reveals the text
    cache_budget_bytes: int | None = None  # of that KV; None means `disk_mb`
    prefill_chunk: int = 256  # tokens per forward, which bounds how long a request waits; a fast GPU takes more
    batching: bool = True  # requests share forwards, as many as there are slots
    speculation: bool = True  # drafts are verified in one forward
    separate_users: bool = False  # users reuse nothing of each other's
    kernel: bool = True  # the CPU kernel, if available
    split_attention: bool = False  # in CUDA graphs, if Triton is installed

    @property
    def store_bytes(self) -> int:
        return self.store_mb * 2**20 if self.store_budget_bytes is None else self.store_budget_bytes

    @property
    def cache_bytes(self) -> int:
        return self.disk_mb * 2**20 if self.cache_budget_bytes is None else self.cache_budget_bytes


def engine_options(settings: CoreSettings) -> EngineOptions:
    """The options of an engine with these settings that saves nothing on disk."""
    return EngineOptions(**{field.name: getattr(settings, field.name) for field in fields(CoreSettings)})
