"""Plays a recorded session end to end through the language server: time to suggestion, and the share beside the model.

    python bench/keystroke.py [--model tiny --model S --model M] [--limit 300] [--pause 100] [--json FILE]

Each model gets a language server over stdio and a core of its own; S and M are random weights in the shapes of
`checkpoints.py`, and so is tiny, which is so small that all other code stays in the processor's caches. Times are taken
at the pipes, from the bytes of the request to those of the item, so they exclude this bench's own client.
With a `--pause` both processes rest before every key, as with a typist, and the processor's caches are colder. The own
share of a keystroke is all of that time except prefill and decode. It has three parts:

- the language server, with the pipes: its time apart from the wait for the core;
- the core: tokenizing the prompt, and matching resident tokens;
- the way: the rest of the language server's wait, from a message to its JSON, through the WebSocket and the queue
  to the model's thread, and back.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from checkpoints import MODEL_HELP, model_called
from figures import JsonFile, machine, write
from playing import TRACE, Session, open_midfill
from rich.console import Console
from rich.table import Table

from midfill.replay.player import StepResult
from midfill.replay.results import percentiles
from midfill.replay.trace import read_trace


async def time_to_suggestion(
    model: str, session: Session, settings: Mapping[str, object], *, moves: bool, pause_ms: float
) -> list[StepResult]:
    """The answers to the counted requests."""
    answers = []
    async with open_midfill(session, {"model": model, **settings}) as target:
        gc.disable()  # an editor would not have this bench's garbage
        try:
            for step in session.steps():
                if pause_ms:
                    await asyncio.sleep(pause_ms / 1000)
                answers.append(await target.play(step, announce_move=moves))
        finally:
            gc.enable()
    return answers[session.warm_up :]


def figures(answers: list[StepResult]) -> dict[str, Any]:
    """The figures of one model, times in milliseconds; requests that needed no core count with all their time."""
    asked = [answer for answer in answers if answer.usage is not None]
    own_ms = [answer.milliseconds - _model_ms(answer) for answer in answers]
    way_ms = [answer.core_milliseconds - _model_ms(answer) - _prepare_ms(answer) for answer in asked]
    return {
        "requests": len(answers),
        "answered_without_the_core": len(answers) - len(asked),
        "time_to_suggestion_ms": percentiles([answer.milliseconds for answer in answers]),
        "own_share_ms": percentiles(own_ms),
        "language_server_ms": percentiles([answer.milliseconds - answer.core_milliseconds for answer in answers]),
        "way_ms": percentiles(way_ms),
        "core_ms": percentiles(list(map(_prepare_ms, asked))),
        "prefill_ms": percentiles([answer.usage.prefill_ms for answer in asked if answer.usage]),
        "decode_ms": percentiles([answer.usage.decode_ms for answer in asked if answer.usage]),
        "recomputed_tokens": percentiles([answer.usage.recomputed_tokens for answer in asked if answer.usage]),
        "generated_tokens": percentiles([answer.usage.generated_tokens for answer in asked if answer.usage]),
        "forwards_mean": mean(answer.usage.forwards for answer in asked if answer.usage),
    }


def _model_ms(answer: StepResult) -> float:
    return answer.usage.prefill_ms + answer.usage.decode_ms if answer.usage else 0.0


def _prepare_ms(answer: StepResult) -> float:
    return answer.usage.prepare_ms if answer.usage else 0.0


def main(
    model: Annotated[list[str] | None, typer.Option(help=MODEL_HELP)] = None,
    trace: Annotated[Path, typer.Option(help="A recorded session.")] = TRACE,
    language: Annotated[str, typer.Option(help="The document's language id.")] = "rust",
    start: Annotated[int, typer.Option(min=0, help="First transaction to play.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="Number of transactions to measure.")] = 300,
    warm_up: Annotated[int, typer.Option(min=0, help="Number of transactions to play before the measured ones.")] = 10,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 16,
    weights: Annotated[str, typer.Option(help="The setting `weights`.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="The setting `threads`; 0 takes half the cores.")] = 0,
    moves: Annotated[bool, typer.Option(help="Announce cursor moves, as editors do.")] = True,
    pause: Annotated[float, typer.Option(min=0, help="Pause before each key, in milliseconds.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per model and percentile."""
    session = Session(read_trace(trace), language, start, limit, warm_up, max_new_tokens)
    settings = {"weights": weights, "threads": threads}
    models = {}
    for name in model or ["tiny", "S", "M"]:
        with model_called(name) as checkpoint:
            played = time_to_suggestion(checkpoint, session, settings, moves=moves, pause_ms=pause)
            models[name] = figures(asyncio.run(played))
    times = ("time to suggestion", "own share", "language server", "way", "core", "prefill", "decode")
    columns = [f"{time.replace(' ', '_')}_ms" for time in times]
    table = Table("model", "ms", *times)
    for name, measured in models.items():
        for rank in measured["own_share_ms"]:
            table.add_row(name, rank, *(str(measured[column][rank]) for column in columns))
    Console(width=120).print(table)
    write(json_file, {"machine": machine(), "trace": session.trace.name, "pause_ms": pause, **settings, "models": models})


if __name__ == "__main__":
    typer.run(main)
