"""Lets typists share one core: each plays a part of a recorded session at typing speed, over a connection of their own.

    python bench/team.py SESSION.json.gz [--typists 20] [--seconds 60] [--flood] [--silent-reader] [--json FILE]

A typist pauses as the recording does, at most --longest-pause seconds; the times of several keys of one second, as some
recordings have them, are spread over it. --keys-per-second types evenly instead, at any recording.

Every typist has the language server's own documents, prompts and suggestions, in this process, and a WebSocket to a
core process of this bench. A key does not wait for the suggestion of the key before. Keys of the warm-up are not
counted, since every first prompt is cold. The time to suggestion runs from the key to the suggestion, with debounce,
where the core answered before the next key; keys that the last suggestion answered, and overtaken ones, are counted
apart. Fairness is the slowest typist's p95 over the median typist's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated, Any
from unittest.mock import patch
from urllib.parse import urlsplit

import psutil
import typer
from figures import JsonFile, machine, write
from playing import MOVE_S, parts_of
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from lsp_server.core_client.client import CoreClient, Endpoint
from lsp_server.core_client.link import local_core
from lsp_server.core_client.processes import endpoint_of
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.environment import private_core_environment
from midfill.replay.results import percentiles
from midfill.replay.trace import Trace, play, read_trace
from protocol.errors import Cancelled, MidfillError
from protocol.messages import Completion, CompletionRequest, CoreStatus, Prompt
from protocol.settings import BUNDLED_MODEL, LOCAL_ENGINE, TINY_MODEL, Settings
from protocol.wire import Complete, encode

PONG_S = 60.0
"""Longest wait for a pong: here one process reads those of all typists, on the cores that the engine computes on."""
DRAIN_S = 30.0
"""Longest wait for the answers that are due when typing ends."""
FLOOD_REQUESTS = 64  # as many as the core lets one client have waiting
UNREAD_EVERY_S = 0.02
OTHERS_PROMPT = Prompt("value = first(value) + second(value)\n" * 60, "")


@dataclass
class CountedCore:
    """A connection to the core, as an `EditingSession` uses it, which counts what becomes of requests."""

    ready = True
    chars_per_token: float = 0.0
    client: CoreClient = field(init=False)
    asked: int = 0  # requests for suggestions, of which each is answered, overtaken by a newer key, or failed
    answered: int = 0
    overtaken: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Requests without an outcome: those on their way, and none after the end."""
        return self.asked - self.answered - self.overtaken - self.failures.total()

    def start_counting(self) -> None:
        """Forget all requests but those that are on their way."""
        self.asked, self.answered, self.overtaken = self.lost, 0, 0
        self.failures.clear()

    async def complete(self, request: CompletionRequest) -> Completion:
        if request.max_tokens == 0:
            return await self.client.complete(request)
        self.asked += 1
        try:
            completion = await self.client.complete(request)
        except (asyncio.CancelledError, Cancelled):
            self.overtaken += 1
            raise
        except MidfillError as error:
            self.failures[f"{error.code}: {error}"] += 1
            raise
        self.answered += 1
        return completion

    def forget(self, session: str) -> None:
        self.client.forget(session)

    def release(self, session: str) -> None:
        self.client.release(session)

    def hear(self, status: CoreStatus) -> None:
        self.chars_per_token = status.chars_per_token


@dataclass
class Typist:
    """One user: a document, a connection, and what the keys took."""

    name: str
    part: Trace
    keys_per_second: float | None  # None: as recorded
    longest_pause: float
    core: CountedCore = field(default_factory=CountedCore)
    keys: int = 0
    typed: int = 0  # keys that the last suggestion answered
    milliseconds: list[float] = field(default_factory=list)  # of answered requests
    outcomes: Counter[str] = field(default_factory=Counter)
    _cost: PromptCost | None = None

    def start_counting(self) -> None:
        """Forget the keys so far."""
        self.core.start_counting()
        self.keys = self.typed = 0
        self.milliseconds.clear()
        self.outcomes.clear()

    async def type(self, settings: Settings, language: str, until: float) -> None:
        """Type the part of the session key by key, until this `time.monotonic()` or its end."""
        session = EditingSession(self.core, settings, self.name, self._note)
        document = session.open(f"file:///bench/{self.name}", language, 1, self.part.start)
        random, asked = Random(self.name), asyncio.create_task(asyncio.sleep(0))
        last: float | None = None

        async def ask(query: Query) -> None:
            started, self._cost = time.perf_counter(), None
            await session.suggest(document, query)
            if self._cost is not None and self._cost.source == "typed":
                self.typed += 1
            elif self._cost is not None:
                self.milliseconds.append((time.perf_counter() - started) * 1e3)
                self.outcomes[self._cost.cache_outcome] += 1

        for step in play(self.part):
            await asyncio.sleep(self._pause(random, last, step.time))
            last = step.time
            if time.monotonic() > until:
                break
            if step.moved_to is not None:
                session.prefetch(document, step.moved_to)
                await asyncio.sleep(MOVE_S)
            for edit in step.edits:
                document.apply(edit)  # which ends the request of the key before
            await asked
            self.keys += 1
            asked = asyncio.create_task(ask(Query(step.cursor)))
        with suppress(TimeoutError):  # then the request is lost, and counted as such
            async with asyncio.timeout(DRAIN_S):
                await asked
        await self.core.client.close()

    def _pause(self, random: Random, before: float | None, now: float | None) -> float:
        """The seconds between the keys of these times; None for the first key."""
        if self.keys_per_second is not None:
            return random.uniform(0.5, 1.5) / self.keys_per_second
        return random.random() if before is None or now is None else min(now - before, self.longest_pause)

    def _note(self, cost: PromptCost) -> None:
        if not cost.is_prefetch:
            self._cost = cost


async def flood(endpoint: Endpoint) -> None:
    """Keep as many requests waiting as one client may have, in as many sessions."""
    client = await CoreClient.open(endpoint, lambda _: None)

    async def keep_asking(number: int) -> None:
        while True:
            with suppress(MidfillError):
                await client.complete(CompletionRequest(f"flood/{number}", OTHERS_PROMPT, 16))
            await asyncio.sleep(0)

    try:
        await asyncio.gather(*(keep_asking(number) for number in range(FLOOD_REQUESTS)))
    finally:
        await client.close()


async def never_read(endpoint: Endpoint) -> None:
    """Ask on, and read no answer; when the core drops the connection, open another."""
    url, headers = urlsplit(endpoint.url), {"Authorization": f"Bearer {endpoint.token}"}
    while True:
        unread = socket.create_connection((url.hostname, url.port))
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client = await connect(endpoint.url, sock=unread, additional_headers=headers, ping_interval=None)
        client.transport.pause_reading()
        try:
            for number in count():
                request = CompletionRequest(f"silent/{number % 8}", OTHERS_PROMPT, 64)
                await client.send(encode(Complete(number, request)))
                await asyncio.sleep(UNREAD_EVERY_S)
        except (OSError, ConnectionClosed):
            pass
        finally:
            client.transport.abort()


async def run(
    typists: Sequence[Typist],
    settings: Settings,
    language: str,
    seconds: float,
    warm_up: float,
    disturbances: Sequence[Callable[[Endpoint], Coroutine[Any, Any, None]]],
) -> list[int]:
    """Let all type; the core's resident bytes, sampled once a second."""
    core = local_core(settings)
    address = await core.find_or_start()
    endpoint, process = endpoint_of(address, core.file), psutil.Process(address.pid)
    for typist in typists:
        typist.core.client = await CoreClient.open(endpoint, typist.core.hear)
    await typists[0].core.complete(CompletionRequest("bench/first", OTHERS_PROMPT, 0))  # loads the model
    end = time.monotonic() + warm_up + seconds
    resident = []
    with Progress(console=Console(stderr=True)) as progress:
        typing = [asyncio.create_task(typist.type(settings, language, end)) for typist in typists]
        others = [asyncio.create_task(disturb(endpoint)) for disturb in disturbances]
        bar = progress.add_task("warm-up", total=warm_up + seconds)
        is_counting = False
        while any(not task.done() for task in typing):
            left = max(0.0, end - time.monotonic())
            if not is_counting and left <= seconds:
                is_counting = True
                for typist in typists:
                    typist.start_counting()
            keys = sum(typist.keys for typist in typists) if is_counting else 0
            failed = sum(typist.core.failures.total() for typist in typists)
            told = f"{keys} keys, {failed} failed" if is_counting else "warm-up"
            progress.update(bar, completed=warm_up + seconds - left, description=told)
            if is_counting:
                resident.append(process.memory_info().rss)
            for task in others:
                if task.done():
                    task.result()  # a fault of the bench itself ends it
            await asyncio.wait(typing, timeout=1)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.gather(*typing)
    return resident


def figures(typists: Sequence[Typist], resident: Sequence[int]) -> dict[str, Any]:
    """The figures of a run; times in milliseconds, memory in MB."""
    milliseconds = [taken for typist in typists for taken in typist.milliseconds]
    outcomes: Counter[str] = sum((typist.outcomes for typist in typists), Counter())
    failures: Counter[str] = sum((typist.core.failures for typist in typists), Counter())
    if not milliseconds:
        raise SystemExit(f"no request was answered: {dict(failures) or 'type for longer'}")
    slow = [percentiles(typist.milliseconds)["p95"] for typist in typists if typist.milliseconds]
    return {
        "typists": len(typists),
        "typists_without_an_answer": len(typists) - len(slow),
        "keys": sum(typist.keys for typist in typists),
        "answered_by_the_last_suggestion": sum(typist.typed for typist in typists),
        "requests": sum(typist.core.asked for typist in typists),
        "answered": sum(typist.core.answered for typist in typists),
        "overtaken": sum(typist.core.overtaken for typist in typists),
        "lost": sum(typist.core.lost for typist in typists),
        "failures": dict(failures),
        "time_to_suggestion_ms": percentiles(milliseconds),
        "hit_share": round(outcomes["hit"] / outcomes.total(), 4),
        "fairness": round(max(slow) / median(slow), 2),
        "core_mb": {"first": resident[0] // 10**6, "most": max(resident) // 10**6, "last": resident[-1] // 10**6},
    }


def main(
    trace: Annotated[Path, typer.Argument(help="A recorded session.", exists=True, dir_okay=False)],
    language: Annotated[str, typer.Option(help="The document's language id.")] = "rust",
    typists: Annotated[int, typer.Option(min=1, help="Users, each with a part of the session.")] = 20,
    seconds: Annotated[float, typer.Option(min=1, help="Time that is counted.")] = 60,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of typing before that.")] = 15,
    keys_per_second: Annotated[
        float | None, typer.Option(min=0.1, help="Mean speed of a typist.  [default: as recorded]")
    ] = None,
    longest_pause: Annotated[float, typer.Option(min=0, help="Longest pause of a recording, in seconds.")] = 10,
    model: Annotated[
        str | None, typer.Option(help="The setting `model`.  [default: tiny; that of the engine, if it runs already]")
    ] = None,
    engine: Annotated[str, typer.Option(help="The setting `engine`, for a server that runs already.")] = "local",
    has_flood: Annotated[bool, typer.Option("--flood", help="Add a client that always has 64 requests waiting.")] = False,
    silent_reader: Annotated[bool, typer.Option(help="Add a client that asks and never reads.")] = False,
    slots: Annotated[int, typer.Option(min=0, help="The setting `slots`.")] = 0,
    store_mb: Annotated[int, typer.Option(min=0, help="The setting `storeMb`.")] = 0,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="The setting `maxTokens`.")] = 16,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per figure."""
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, stack.enter_context(private_core_environment())))
        stack.enter_context(patch("lsp_server.core_client.client._READY_TIMEOUT_S", PONG_S))
        model = model or (TINY_MODEL if engine == LOCAL_ENGINE else BUNDLED_MODEL)
        settings = Settings(
            model=model,
            engine=engine,
            slots=slots,
            store_mb=store_mb,
            max_tokens=max_new_tokens,
            hold_back_percent=0,
            shorten_unlikely=False,
            other_files=False,
        )
        disturbances = [*([flood] if has_flood else []), *([never_read] if silent_reader else [])]
        recorded = read_trace(trace)
        if keys_per_second is None and not recorded.times:
            raise typer.BadParameter(f"{trace} has no times: --keys-per-second is needed")
        parts = enumerate(parts_of(recorded, typists))
        team = [Typist(f"typist-{number}", part, keys_per_second, longest_pause) for number, part in parts]
        resident = asyncio.run(run(team, settings, language, seconds, warm_up, disturbances))
        result = figures(team, resident)
    table = Table("figure", "value")
    for name, value in result.items():
        told = " / ".join(map(str, value.values())) if isinstance(value, dict) and name != "failures" else str(value)
        table.add_row(name.replace("_", " "), told)
    Console(width=120).print(table)
    given = {"model": model, "engine": engine, "seconds": seconds, "keys_per_second": keys_per_second}
    given |= {"longest_pause": longest_pause, "flood": has_flood, "silent_reader": silent_reader}
    write(json_file, {"machine": machine(), **given, **result})


if __name__ == "__main__":
    typer.run(main)
