"""Finds the running cores of this machine by their address files, checks them, and ends them.

A core counts as running if it holds its lock, and as the user's own if it proves that it knows the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lsp_server.core.client import CoreClient, Endpoint
from lsp_server.core.os_process import CoreProcess
from lsp_server.core.proof import check_proof
from protocol.errors import CoreBlocked, CoreSilent, CoreUnavailable, Unauthorized
from protocol.messages import PROTOCOL_VERSION, CoreStatus
from protocol.rendezvous import (
    CoreAddress,
    StoppedCore,
    end_stop,
    is_held,
    read_address,
    read_or_make_token,
    write_stop,
)
from protocol.wire import StopHow

logger = logging.getLogger(__name__)

_ANSWER_S = 5.0
_EXIT_S = 20.0  # a core that exits saves its KV caches
_POLL_S = 0.05


def published_core(file: Path) -> CoreAddress | None:
    """The core that this address file names, if it runs; BadInput if the file or the lock cannot be used."""
    return read_address(file) if is_held(file) else None


def endpoint_of(address: CoreAddress, file: Path, differs: str = "") -> Endpoint:
    """The endpoint of a core of this machine, from its address and address file; BadInput for a bad token."""
    return Endpoint(address.url, read_or_make_token(file.parent), own=True, differs=differs)


async def answering_core(file: Path) -> CoreAddress | None:
    """The core that this address file names, if it runs, speaks our protocol and knows the token.

    None if no core runs, or if it has just begun to listen or to exit. Raises CoreBlocked for another protocol
    version, CoreSilent if the core does not answer, Unauthorized if it does not know the token.
    """
    address = published_core(file)
    if address is None:
        return None
    if address.protocol_version != PROTOCOL_VERSION:
        raise CoreBlocked(
            f"the running core (process {address.pid}) has another version of midfill (protocol "
            f"{address.protocol_version}, this one: {PROTOCOL_VERSION}): stop it with `midfill core stop`"
        )
    try:
        await check_proof(address.url, read_or_make_token(file.parent))
    except Unauthorized as error:
        if CoreProcess.of(address) is None:
            return None  # a former core's address: the next core has not published its own yet
        raise Unauthorized(
            f"the core of process {address.pid} does not know the token in {file.with_name('token')}: stop it "
            "with `midfill core stop`"
        ) from error
    except CoreSilent as error:
        raise CoreSilent(f"the core (process {address.pid}) does not answer") from error
    except CoreUnavailable:
        return None
    return address


async def ask_status(endpoint: Endpoint) -> CoreStatus:
    """The core's status; errors as from `CoreClient.open`, and CoreSilent if the core sends none."""
    answer: asyncio.Future[CoreStatus] = asyncio.get_running_loop().create_future()

    def hear(status: CoreStatus) -> None:
        if not answer.done():
            answer.set_result(status)

    async with closing(await CoreClient.open(endpoint, hear)) as client:
        await _first(answer, client)
        return answer.result()


async def stop_core(file: Path, by: str) -> bool:
    """End the core that this address file names, as `end_core`, and keep the clients of now from starting another one.

    `by` names the program that stops it, for their users.
    """
    write_stop(
        file, StoppedCore(by, published_core(file), time.time())
    )  # first: other clients look at it when the core ends
    try:
        return await end_core(file, "stop")
    except BaseException:
        end_stop(file)
        raise


async def end_core(file: Path, how: StopHow) -> bool:
    """End the core that this address file names, and return when it has exited; False if none runs.

    A core that does not answer is ended by signals. CoreBlocked, with the reason, if it does not exit.
    """
    address = published_core(file)
    if address is None:
        return False
    try:
        await _ask_to_stop(address, file, how)
    except (CoreSilent, Unauthorized) as error:
        logger.warning("the core (process %d) cannot be asked to exit: %s", address.pid, error)
        if how != "stop" and not address.replaceable:
            raise CoreBlocked(f"process {address.pid} was started by hand: stop it with `midfill core stop`") from error
        _sure_process(address).terminate()
    except CoreBlocked:
        raise
    except CoreUnavailable:
        pass  # it has begun to exit
    if not await _has_gone(file):
        _sure_process(address).kill()
        if not await _has_gone(file):
            raise CoreBlocked(f"process {address.pid} does not exit")
    return True


def _sure_process(address: CoreAddress) -> CoreProcess:
    process = CoreProcess.of(address)
    if process is None:
        raise CoreBlocked(f"process {address.pid} may not be the core at {address.url}, so midfill does not end it")
    return process


async def _ask_to_stop(address: CoreAddress, file: Path, how: StopHow) -> None:
    if address.protocol_version != PROTOCOL_VERSION:
        raise CoreSilent("it has another version")
    kept: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    endpoint = endpoint_of(address, file)
    async with closing(await CoreClient.open(endpoint, lambda _: None, kept.set_result)) as client:
        client.stop(how)
        await _first(kept, client, ends=True)
        if kept.done():
            raise CoreBlocked(f"the core keeps running: {kept.result()}")


async def _first(answer: asyncio.Future[Any], client: CoreClient, *, ends: bool = False) -> None:
    """Wait for the result of `answer`; with `ends`, the end of the connection suffices."""
    closed = asyncio.ensure_future(client.wait_closed())
    done, _ = await asyncio.wait({answer, closed}, timeout=_ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
    closed.cancel()
    if answer.done():
        return
    if not done:
        raise CoreSilent("the core accepts connections but sends nothing")
    closed.result()
    if not ends:
        raise CoreUnavailable("the core has exited")


@contextlib.asynccontextmanager
async def closing(client: CoreClient) -> AsyncIterator[CoreClient]:
    """The client, until it is closed with the context."""
    try:
        yield client
    finally:
        await client.close()


async def _has_gone(file: Path) -> bool:
    deadline = time.monotonic() + _EXIT_S
    while is_held(file):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True
