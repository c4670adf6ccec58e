"""`midfill complete`: the suggestion for one place in a file, by the language server's own parts.

The request goes to a running core, or to the core on another machine that the settings name. If there is none, or if
its settings differ from the given ones, this process loads the model: a core started for one answer would stay behind.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs, to_builtins
from rich.console import Console

from midfill.explain import PromptPart, explanation, parts_of
from protocol.errors import BadInput, CoreUnavailable, MidfillError, Unauthorized
from protocol.identity import ANSWER_SETTINGS, describe, differences
from protocol.messages import Completion, CompletionRequest, CoreStatus, Usage
from protocol.rendezvous import (
    CoreAddress,
    address_file,
    core_name,
    resolve_engine,
    resolve_model,
    runtime_folder,
)
from protocol.settings import SETTINGS, Settings, option_name

if TYPE_CHECKING:
    from lsp_server.core.client import CoreClient
    from lsp_server.editing.documents import Position
    from lsp_server.suggesting.reasons import Reason
    from midfill.headless.engine_core import EngineCore


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A place in a file; line and column count from 1, the column in characters, as in compilers' messages."""

    path: Path
    line: int
    column: int

    @classmethod
    def parse(cls, text: str) -> FilePosition:
        """From `FILE:LINE:COL`; BadInput if it is not of that form."""
        path, *numbers = text.rsplit(":", 2)
        if len(numbers) != 2 or not all(number.isdecimal() and int(number) > 0 for number in numbers):
            raise BadInput(f"{text}: expected FILE:LINE:COL, with line and column counted from 1")
        return cls(Path(path), int(numbers[0]), int(numbers[1]))


@dataclass(frozen=True, slots=True)
class Result:
    """A suggestion for a place, and how many characters behind the cursor it replaces."""

    text: str
    replaced: int
    milliseconds: float  # without loading a model
    usage: Usage | None  # None if no request was sent
    percent: float | None  # the mean probability of the tokens that editors show without request; None without tokens
    parts: tuple[PromptPart, ...] = ()  # of the prompt, in its order
    reason: Reason | None = None  # why there is no suggestion


def complete_command(
    settings: Settings,
    place: Annotated[str, typer.Argument(metavar="FILE:LINE:COL", help="Counted from 1, as compilers print it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print suggestion and cost as a JSON object.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the prompt, and where each part comes from.")
    ] = False,
) -> None:
    """Print the suggestion for a place in a file.

    The request goes to a running core. If there is none, or if its settings differ from those given (defaults do not
    count), this process loads the model. An unlikely suggestion is printed too, with a note if an editor shows it only
    on request.
    """
    result = asyncio.run(complete(settings, FilePosition.parse(place)))
    if as_json:
        prompt = {"prompt": to_builtins(result.parts)} if explain else {}
        typer.echo(json.dumps(_as_json(result, settings) | prompt, indent=2, ensure_ascii=False))
        return
    if explain:
        Console().print(explanation(result.parts))
    if not result.text:
        typer.echo(f"midfill: {result.reason.explanation if result.reason else 'nothing to suggest here'}", err=True)
        return
    typer.echo(result.text)
    if result.percent is not None and _is_held_back(result, settings):
        from lsp_server.suggesting.reasons import unlikely

        reason = unlikely(result.percent, settings.hold_back_percent, "")
        typer.echo(f"midfill: editors show this suggestion only on request. {reason.explanation}", err=True)


async def complete(settings: Settings, place: FilePosition) -> Result:
    """The suggestion for the place; BadInput if the file or the place does not exist, and the core's errors."""
    from lsp_server.editing.languages import language_id_of
    from lsp_server.filters.cursor_context import Insertion
    from lsp_server.filters.likely import likely_part, whole
    from lsp_server.suggesting.editing_session import EditingSession
    from lsp_server.suggesting.queries import Query
    from midfill.workspaces import gathered, workspace_of

    text = _read(place.path)
    _check_allowed(place.path, settings)
    uri = place.path.resolve().as_uri()
    cursor = _cursor(text, place)
    async with _find_core(settings) as core:
        answers = _Witness(core)
        session = EditingSession(answers, settings, "complete", lambda _: None)
        folder = workspace_of(place.path.resolve())
        session.documents.use_folders([folder.as_uri()])
        opened = session.open(uri, language_id_of(place.path.suffix), 1, text)
        if not await gathered(opened, cursor, folder, settings):
            _tell(f"the index of {folder} takes long, and is incomplete")
        started = time.perf_counter()
        insertions = await session.suggest(opened, Query(cursor, invoked=True))
        milliseconds = (time.perf_counter() - started) * 1000
        parts = parts_of(opened.plan(cursor))
        reason = None if insertions else session.explainer.reason(opened)
        session.close(uri)
    if answers.error is not None:
        raise answers.error
    insertion = insertions[0] if insertions else Insertion("")
    usage = percent = None
    if opened.last_exchange is not None:
        _, completion = opened.last_exchange
        usage = completion.usage
        percent = (likely_part if settings.shorten_unlikely else whole)(completion).percent
    return Result(insertion.text, insertion.replaced, milliseconds, usage, percent, parts, reason)


class _Witness:
    """Passes requests on to a core and keeps its error, which an editing session only logs."""

    ready = True
    chars_per_token = 0.0  # only costs need it, and they are not reported here

    def __init__(self, core: CoreClient | EngineCore) -> None:
        self.error: MidfillError | None = None
        self._core = core

    async def complete(self, request: CompletionRequest) -> Completion:
        try:
            return await self._core.complete(request)
        except MidfillError as error:
            self.error = error
            raise

    def forget(self, session: str) -> None:
        self._core.forget(session)

    def release(self, session: str) -> None:
        self._core.release(session)


@asynccontextmanager
async def _find_core(settings: Settings) -> AsyncIterator[CoreClient | EngineCore]:
    """The core on another machine, a running one, or an engine in this process; with the errors of each."""
    client = await _running_core(settings)
    if client is not None:
        try:
            yield client
        finally:
            await client.close()
        return
    from inference.loading.options import engine_options
    from inference.remote.connecting import open_engine
    from midfill.headless.engine_core import EngineCore

    console = Console(stderr=True)
    with console.status("loading the model"):
        engine = open_engine(engine_options(settings))
    yield EngineCore(engine)
    engine.close()


async def _running_core(settings: Settings) -> CoreClient | None:
    from lsp_server.core.client import CoreClient
    from lsp_server.core.local_cores import endpoint_of
    from lsp_server.core.target import remote_endpoint

    if settings.core:
        return await CoreClient.open(remote_endpoint(settings), _ignore)
    file = address_file(runtime_folder(), core_name(resolve_model(settings.model), resolve_engine(settings.engine)))
    try:
        address = await _usable_core(settings, file)
        return None if address is None else await CoreClient.open(endpoint_of(address, file), _ignore)
    except Unauthorized:
        raise
    except CoreUnavailable as error:
        _tell(f"{error}; loading the model in this process")
        return None


async def _usable_core(asked: Settings, file: Path) -> CoreAddress | None:
    """The running core, if it has the requested settings; a line on stderr says where it differs."""
    from lsp_server.core.local_cores import answering_core, ask_status, endpoint_of

    address = await answering_core(file)
    if address is None:
        return None
    status = await ask_status(endpoint_of(address, file))
    found = differences(address.settings, asked, ANSWER_SETTINGS)
    given = [one for one in found if one.asked != SETTINGS[one.name].default]
    if status.state == "failed":
        _tell(f"the running core has failed ({status.detail}); loading the model in this process")
        return None
    if given:
        _tell(f"the running core has {describe(given, option_name)}; loading the model in this process")
        return None
    if found:
        _tell(f"the running core answers, with {describe(found, option_name)}")
    return address


def _tell(message: str) -> None:
    typer.echo(f"midfill: {message}", err=True)


def _ignore(status: CoreStatus) -> None:
    """Ignores the core's status: a model that still loads only delays the answer."""


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")  # bytes, so that line ends stay as they are
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error


def _cursor(text: str, place: FilePosition) -> Position:
    from lsp_server.editing.documents import Position, line_length, split_lines

    lines = split_lines(text)
    if place.line > len(lines):
        raise BadInput(f"{place.path} has no line {place.line}: valid lines: 1 to {len(lines)}")
    last = line_length(lines[place.line - 1]) + 1
    if place.column > last:
        raise BadInput(f"line {place.line} of {place.path} has no column {place.column}: valid columns: 1 to {last}")
    return Position(place.line - 1, place.column - 1)


def _check_allowed(path: Path, settings: Settings) -> None:
    """BadInput if a rule keeps the file out of its own prompts; checked before a model is loaded."""
    from lsp_server.exclusion.exclusion import Exclusion
    from lsp_server.suggesting.reasons import excluded

    uri = path.resolve().as_uri()
    verdict = Exclusion([Path.cwd().as_uri()], time.monotonic).verdict(uri)
    if verdict is not None and (verdict.cause != "gitignore" or settings.ignored_files == "off"):
        raise BadInput(f"{path}: {excluded(verdict, uri).explanation}")


def _as_json(result: Result, settings: Settings) -> dict[str, Any]:
    return {
        "model": settings.model,
        "suggestion": result.text,
        "replaced": result.replaced,
        "milliseconds": round(result.milliseconds, 3),
        "percent": result.percent and round(result.percent, 1),
        "held_back": _is_held_back(result, settings),
        "reason": result.reason.explanation if result.reason else None,
        "usage": structs.asdict(result.usage) if result.usage else None,
    }


def _is_held_back(result: Result, settings: Settings) -> bool:
    """Whether an editor would not show the suggestion on its own."""
    return bool(result.text) and result.percent is not None and result.percent < settings.hold_back_percent
