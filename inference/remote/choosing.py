"""Opens the engine that the options name: the local one, or one in another process."""

from __future__ import annotations

from inference.checkpoints.hub import ReportProgress
from inference.engine.interface import AnyEngine
from inference.loading.engine import is_here, load_engine
from inference.loading.options import EngineOptions
from inference.remote.connecting import connect
from inference.remote.servers.address import read_engine_addresses


def open_engine(options: EngineOptions, progress: ReportProgress | None = None) -> AnyEngine:
    """The engine; the errors are those of `load_engine` or `connect`."""
    opens = connect if read_engine_addresses(options.engine) else load_engine
    return opens(options, progress)


def needs_download(options: EngineOptions) -> bool:
    """Whether opening the engine downloads the model; raises for faults that show without opening it."""
    return not read_engine_addresses(options.engine) and not is_here(options)
