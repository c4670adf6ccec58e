"""The core that answers one request of the command line: a running one, one that it starts, or an engine of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status

from protocol.errors import CoreUnavailable, Unauthorized
from protocol.messages import CoreStatus
from protocol.rendezvous import ANSWER_SETTINGS, CoreAddress, describe, differences
from protocol.settings import LOCAL_ENGINE, SETTINGS, Settings, option_name

if TYPE_CHECKING:
    from lsp_server.core_client.client import CoreClient
    from midfill.headless.engine_core import EngineCore


class Waiting:
    """The progress line of a wait; use it as a context, whose end takes the redrawn line away."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._status: Status | None = None
        self._reported: set[str] = set()

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.over()

    def on(self, what: str, share: float | None = None) -> None:
        """Wait for this from now on; `share` of it is done, 0..1."""
        if self._console.is_terminal:
            text = what if share is None else f"{what}, {share:.0%}"
            if self._status is None:
                self._status = self._console.status(text)
                self._status.start()
            self._status.update(text)
        elif what not in self._reported:
            self._reported.add(what)
            self.note(what)

    def over(self) -> None:
        """Wait for nothing more."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def note(self, message: str) -> None:
        """Print a line that stays."""
        self._console.print(f"midfill: {message}")


@asynccontextmanager
async def core_to_ask(settings: Settings, waiting: Waiting, *, may_start: bool) -> AsyncIterator[CoreClient | EngineCore]:
    """The core that the settings name, else the running one for their model, with `may_start` one that is started.

    A core that is started stays. An engine in this process is the last choice: if no core may be started, or if the
    running one cannot be used. `waiting` tells what is being done; the errors are those of each.
    """
    from lsp_server.core_client.client import CoreClient
    from lsp_server.core_client.link import remote_endpoint

    if settings.core:
        client: CoreClient | None = await CoreClient.open(remote_endpoint(settings), _teller(waiting))
    else:
        client = await _core_of_this_machine(settings, waiting, may_start=may_start)
    if client is not None:
        try:
            yield client
        finally:
            await client.close()
        return
    from inference.loading.options import engine_options
    from inference.remote.connecting import open_engine
    from midfill.headless.engine_core import EngineCore

    waiting.on(f"loading {settings.model} in this process")
    engine = open_engine(engine_options(settings))
    yield EngineCore(engine)
    engine.close()


async def _core_of_this_machine(settings: Settings, waiting: Waiting, *, may_start: bool) -> CoreClient | None:
    from lsp_server.core_client.client import CoreClient
    from lsp_server.core_client.link import local_core
    from lsp_server.core_client.processes import answering_core, endpoint_of

    local = local_core(settings)
    try:
        address = await answering_core(local.file)
        if address is not None and not await _is_usable(address, settings, local.file, waiting):
            return None
        if address is None and may_start:
            import inference.loading.options  # noqa: F401  # that the engine is installed: the core's log is far away
            from inference.checkpoints.checkpoint import find_local_checkpoint

            if settings.engine == LOCAL_ENGINE:
                find_local_checkpoint(settings.model)  # refuses a name of none
            waiting.on(f"starting a core for {settings.model}, which stays for the next call and for editors")
            address = await local.find_or_start()
        return None if address is None else await CoreClient.open(endpoint_of(address, local.file), _teller(waiting))
    except Unauthorized:
        raise
    except CoreUnavailable as error:
        waiting.note(f"{error}; loading the model in this process")
        return None


async def _is_usable(address: CoreAddress, asked: Settings, file: Path, waiting: Waiting) -> bool:
    """Whether the running core has the requested settings and can answer; a line says where it differs."""
    from lsp_server.core_client.processes import ask_status, endpoint_of

    status = await ask_status(endpoint_of(address, file))
    found = differences(address.settings, asked, ANSWER_SETTINGS)
    given = [one for one in found if one.asked != SETTINGS[one.name].default]
    if status.state == "failed":
        waiting.note(f"the running core has failed ({status.detail}); loading the model in this process")
    elif given:
        waiting.note(f"the running core has {describe(given, option_name)}; loading the model in this process")
    elif found:
        waiting.note(f"the running core answers, with {describe(found, option_name)}")
    return status.state != "failed" and not given


def _teller(waiting: Waiting) -> Callable[[CoreStatus], None]:
    """What hears a core's status: a model that still loads delays the answer."""

    def hear(status: CoreStatus) -> None:
        if status.state in ("unloaded", "loading"):
            waiting.on(f"the core loads {status.model}", status.progress)
        else:
            waiting.over()

    return hear
