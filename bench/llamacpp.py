"""Compares keystrokes with llama.cpp's server: one session, one model, one machine, both in turns within each key.

    python bench/llamacpp.py --server PATH/TO/llama-server [--model tiny --model S --model M] [--json FILE]

midfill runs end to end: language server over stdio, core, EFIM, with its weights as they are and as int8. llama-server
gets `/infill` requests over HTTP, in its default order and with `--spm-infill`, each in bfloat16 and in q8_0, with
its prompt cache, greedy, on the windows that midfill's own PSM strategy cuts: as large and as sticky as midfill's,
which is better than the editor plugins' windows. Both have as many threads, and write up to 16 tokens of one line; S
and M, random weights in the shapes of `checkpoints.py`, always write all 16. `llama-quantize` must lie beside the
server.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from operator import truediv
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import typer
from checkpoints import MODEL_HELP, model_called
from figures import JsonFile, machine, write
from llama_server import LlamaServer, quantize, run_llama_server
from playing import TRACE, Session, open_midfill
from rich.console import Console
from rich.table import Table
from sides import STOP, LlamaSide, MidfillSide, Side, Timed, figures

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from lsp_server.documents.documents import Position
from midfill.replay.results import RANKS
from midfill.replay.trace import position_at, read_trace
from midfill_lab.recipe.to_gguf import write_gguf
from protocol.messages import CompletionRequest, Prompt

OURS = {"midfill": "auto", "midfill int8": "int8"}
"""midfill's sides, and the setting `weights` of each."""
AGREEMENT_PROMPTS = 8
REST_SECONDS = 0.02  # for the previous side's threads, which spin for a while, to go to sleep


@dataclass(frozen=True, slots=True)
class Peer:
    """The command and options of llama-server."""

    program: Path
    threads: int
    kinds: tuple[str, ...]
    announce_moves: bool

    @contextmanager
    def sides(self, model: str, folder: Path, session: Session) -> Iterator[list[LlamaSide]]:
        """One per kind of weights and order, all running."""
        whole = folder / "model.bf16.gguf"
        write_gguf(model, whole)
        with ExitStack() as stack:
            sides = []
            for kind in self.kinds:
                file = folder / f"model.{kind}.gguf"
                if file != whole:
                    quantize(self.program.with_name("llama-quantize"), whole, file, kind)
                for spm in (False, True):
                    server = stack.enter_context(run_llama_server([str(self.program)], file, self.threads, spm=spm))
                    name = f"llama.cpp {kind}{', spm' if spm else ''}"
                    sides.append(LlamaSide(name, session, server, announce_moves=self.announce_moves))
            yield sides


def agreement(model: str, server: LlamaServer, prompts: Sequence[Prompt], max_new_tokens: int) -> dict[str, int]:
    """Whether both run the same model: the numbers of texts with equal tokens and with equal greedy continuations.

    Rounding may decide a near-tie, so not every continuation must be equal.
    """
    engine = load_engine(EngineOptions(model, context_tokens=8192))
    same_tokens = same_text = 0
    for prompt in prompts:
        text = prompt.prefix + prompt.suffix
        same_tokens += server.tokenize(text) == list(engine.tokenizer.encode(text))
        ours = engine.complete(CompletionRequest("agreement", prompt, max_new_tokens)).text
        same_text += ours == server.infill(prompt, max_new_tokens, [STOP]).text
    engine.close()
    return {"prompts": len(prompts), "same_tokens": same_tokens, "same_continuation": same_text}


async def play_in_turns(sides: Sequence[Side], session: Session) -> dict[str, list[Timed]]:
    """The times of each side's counted keystrokes; the first side in a key is the last in the next."""
    times: dict[str, list[Timed]] = {side.name: [] for side in sides}
    for number, step in enumerate(session.steps()):
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            await asyncio.sleep(REST_SECONDS)
            times[side.name].append(await side.play(step))
    return {name: timed[session.warm_up :] for name, timed in times.items()}


def compared(times: dict[str, list[Timed]]) -> dict[str, Any]:
    """The figures of each side, and their ratios to those of midfill's sides."""
    taken = {name: [keystroke.milliseconds for keystroke in timed] for name, timed in times.items()}
    rows = {name: figures(timed) for name, timed in times.items()}
    for name, row in rows.items():
        theirs = row["time_to_suggestion_ms"]
        row["times"] = {ours: ratios(rows[ours]["time_to_suggestion_ms"], theirs) for ours in OURS}
        row["times_per_key"] = {ours: median(map(truediv, taken[name], taken[ours])) for ours in OURS}
        row["forwards_mean"] = mean(keystroke.forwards for keystroke in times[name]) if name in OURS else None
    return rows


def ratios(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    """How many times as long theirs take, by rank."""
    return {rank: round(theirs[rank] / ours[rank], 2) for rank in ours}


async def compare(model: str, session: Session, peer: Peer, folder: Path) -> dict[str, Any]:
    """Both sides' figures with one model."""
    settings = {"model": model, "multiLine": False, "threads": peer.threads}
    with peer.sides(model, folder, session) as theirs:
        prompts = [theirs[0].prompt(_anywhere(session.text, index)) for index in range(AGREEMENT_PROMPTS)]
        agreed = agreement(model, theirs[0].server, prompts, session.max_new_tokens)
        async with AsyncExitStack() as stack:
            ours = []
            for name, weights in OURS.items():
                opened = open_midfill(session, {**settings, "weights": weights})
                ours.append(MidfillSide(name, await stack.enter_async_context(opened)))
            times = await play_in_turns([*ours, *theirs], session)
    return {"keystrokes": session.limit, "agreement": agreed, "sides": compared(times)}


def _anywhere(text: str, index: int) -> Position:
    """The ends of words, evenly spread over the text."""
    offset = len(text) * (2 * index + 1) // (2 * AGREEMENT_PROMPTS)
    return position_at(text, text.find(" ", offset))


def version(program: Path) -> str:
    """The server's version text."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).strip()


def main(
    server: Annotated[Path, typer.Option(help="llama-server.")],
    model: Annotated[list[str] | None, typer.Option(help=MODEL_HELP)] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Weight type for llama.cpp: bf16, or one of its quantized types.")
    ] = None,
    trace: Annotated[Path, typer.Option(help="A recorded session.")] = TRACE,
    language: Annotated[str, typer.Option(help="The document's language id.")] = "rust",
    start: Annotated[int, typer.Option(min=0, help="First transaction to play.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="Number of transactions to measure.")] = 60,
    warm_up: Annotated[int, typer.Option(min=0, help="Number of transactions to play before the measured ones.")] = 5,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 16,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each engine.")] = 2,
    moves_for_all: Annotated[bool, typer.Option(help="Let llama.cpp prefill ahead at cursor moves too.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per side and percentile."""
    session = Session(read_trace(trace), language, start, limit, warm_up, max_new_tokens)
    peer = Peer(server, threads, tuple(kind or ("bf16", "q8_0")), moves_for_all)
    models = {}
    for name in model or ["tiny", "S", "M"]:
        with model_called(name) as checkpoint, tempfile.TemporaryDirectory() as folder:
            models[name] = asyncio.run(compare(checkpoint, session, peer, Path(folder)))
    headings = (*(f"p{rank}, ms" for rank in RANKS), *(f"times {ours}" for ours in OURS))
    table = Table("model", "side", *headings, "recomputed", "new tokens")
    for name, measured in models.items():
        for side, row in measured["sides"].items():
            cells = [f"{milliseconds:.1f}" for milliseconds in row["time_to_suggestion_ms"].values()]
            cells += [" / ".join(map(str, ratios.values())) for ratios in row["times"].values()]
            cells += [" / ".join(f"{count:.0f}" for count in row["recomputed_tokens"].values())]
            table.add_row(name, side, *cells, f"{row['generated_tokens_mean']:.1f}")
    console = Console(width=140)
    console.print(table)
    for name, measured in models.items():
        console.print(name, measured["agreement"])
    write(json_file, {"machine": machine(), "llama.cpp": version(server), "threads": threads, "models": models})


if __name__ == "__main__":
    typer.run(main)
