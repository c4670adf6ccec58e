"""Gives a core that the user starts the place of one that a client has started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lsp_server.core.local_cores import end_core, published_core
from lsp_server.core.process import starting_lock


@contextmanager
def place_of(file: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block, clients start no core for this address file; one that they had started has ended.

    `tell` gets a line about that. A core that the user has started stays; CoreBlocked if the running one does not exit.
    """
    with starting_lock(file):
        running = published_core(file)
        if running is not None and running.replaceable:
            tell(f"taking the place of the core that an editor has started (process {running.pid})")
            asyncio.run(end_core(file, "restart"))
        yield
