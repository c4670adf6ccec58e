"""The command `midfill complete`: the suggestion for one place in a file, and where each part of its prompt comes from.

The request goes to a core, as an editor's does: to the running one, or to one that is started and stays.
`midfill/core_to_ask.py` chooses it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec import structs, to_builtins

from midfill.core_to_ask import Waiting, core_to_ask
from protocol.errors import BadInput, MidfillError
from protocol.messages import Completion, CompletionRequest, Usage, Value
from protocol.settings import Settings

if TYPE_CHECKING:
    from lsp_server.core_client.client import CoreClient
    from lsp_server.documents.documents import Position
    from lsp_server.prompts.planner import Plan
    from lsp_server.suggesting.reasons import Reason
    from midfill.headless.engine_core import EngineCore


_ORIGINS = {
    "definitions": "a definition of a symbol near the cursor",
    "usages": "a use of a symbol near the cursor",
    "similar": "code like that at the cursor",
    "edits": "your edit of a moment ago",
    "staged": "what is staged of a file",
}
_PARTS = {
    "prefix": "text above the anchor",
    "suffix": "text behind the cursor",
    "increment": "text from the anchor to the cursor",
}
_SHOWN_LINES = 30  # of a window, in the terminal: its ends are what matters


class PromptPart(Value, frozen=True):
    """A part of a prompt in its order; a snippet has the path of its file and the source that proposed it."""

    part: Literal["snippet", "prefix", "suffix", "increment"]
    text: str
    origin: str = ""
    path: str = ""


def parts_of(plan: Plan) -> tuple[PromptPart, ...]:
    """The parts of a planned prompt in the order of its layout; empty ones are left out."""
    return tuple(part for part in _parts(plan) if part.text)


def _parts(plan: Plan) -> Iterator[PromptPart]:
    prompt = plan.prompt
    for snippet, origin in zip(prompt.context, plan.origins, strict=True):
        yield PromptPart("snippet", snippet.text, origin, snippet.path)
    windows = PromptPart("prefix", prompt.prefix), PromptPart("suffix", prompt.suffix)
    yield from reversed(windows) if prompt.order == "spm" else windows
    yield PromptPart("increment", prompt.increment)


def explanation(parts: tuple[PromptPart, ...]) -> str:
    """The parts for the terminal, each below a line that names its origin; long windows are shortened in the middle."""
    return "\n".join(map(_explained, parts))


def _explained(part: PromptPart) -> str:
    if part.part == "snippet":
        title = f"{part.path}: {_ORIGINS[part.origin]} ({part.origin})"
    else:
        title = f"{part.part}: {_PARTS[part.part]}"
    lines = part.text.split("\n")
    if len(lines) > _SHOWN_LINES:
        half = _SHOWN_LINES // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} more lines ...", *lines[-half:]]
    return "\n".join([f"── {title}, {len(part.text)} characters ──", *lines])


_WORTH_TELLING_S = 1.0  # a wait


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
    explain: Annotated[bool, typer.Option("--explain", help="Show the prompt, and where each part comes from.")] = False,
    start_core: Annotated[
        bool, typer.Option("--start-core/--no-start-core", help="Start a core if none runs, and leave it for the next call.")
    ] = True,
) -> None:
    """Print the suggestion for a place in a file.

    The request goes to the running core, or to one that this command starts, as editors do, and leaves running. With
    --no-start-core, or if the running core has other settings than those given (defaults do not count), this process
    loads the model. An unlikely suggestion is printed too, with a note if an editor shows it only on request.
    """
    with Waiting() as waiting:
        result = asyncio.run(complete(settings, FilePosition.parse(place), waiting, may_start=start_core))
    if as_json:
        prompt = {"prompt": to_builtins(result.parts)} if explain else {}
        typer.echo(json.dumps(_as_json(result, settings) | prompt, indent=2, ensure_ascii=False))
        return
    if explain:
        typer.echo(explanation(result.parts))
    if not result.text:
        typer.echo(f"midfill: {result.reason.explanation if result.reason else 'nothing to suggest here'}", err=True)
        return
    typer.echo(result.text)
    if result.percent is not None and _is_held_back(result, settings):
        from lsp_server.suggesting.reasons import how_unlikely

        why = how_unlikely(result.percent, settings.hold_back_percent)
        typer.echo(f"midfill: editors show this suggestion only on request: {why}", err=True)


async def complete(settings: Settings, place: FilePosition, waiting: Waiting, *, may_start: bool) -> Result:
    """The suggestion for the place; BadInput if the file or the place does not exist, and the core's errors.

    With `may_start` a core is started if none runs, and stays.
    """
    from lsp_server.documents.languages import language_id_of
    from lsp_server.filters.cursor_context import Insertion
    from lsp_server.filters.likely import likely_part, whole
    from lsp_server.suggesting.editing_session import EditingSession
    from lsp_server.suggesting.queries import Query
    from midfill.headless.environment import gathered, workspace_of

    text = _read(place.path)
    _check_allowed(place.path, settings)
    uri = place.path.resolve().as_uri()
    cursor = _cursor(text, place)
    async with core_to_ask(settings, waiting, may_start=may_start) as core:
        answers = _Witness(core)
        session = EditingSession(answers, settings, "complete", lambda _: None)
        folder = workspace_of(place.path.resolve())
        session.documents.use_folders([folder.as_uri()])
        opened = session.open(uri, language_id_of(place.path.suffix), 1, text)
        indexing = asyncio.get_running_loop().call_later(_WORTH_TELLING_S, waiting.on, "gathering text of other files")
        if not await gathered(opened, cursor, folder, settings):
            waiting.note(f"the index of {folder} takes long, and is incomplete")
        indexing.cancel()
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


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")  # bytes, so that line ends stay as they are
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error


def _cursor(text: str, place: FilePosition) -> Position:
    from lsp_server.documents.documents import Position, line_length, split_lines

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
