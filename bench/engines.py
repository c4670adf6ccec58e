"""Compares keystrokes through midfill, on llama-server, with the same llama-server's own `/infill`, in turns.

    python bench/engines.py --server PATH/TO/llama-server [--gguf FILE --fim-ids 8,9,10] [--json FILE]

midfill runs end to end: language server over stdio, core with `--engine llama-server=URL`, EFIM, token ids. The other
side asks `/infill` as llama.vim does, in another slot of the same server. Both are greedy and write up to 16 tokens of
one line; they take turns within each key. Without --gguf the model `tiny` is converted. --fim-ids names the tokens
that serve as prefix, suffix and middle marker of a model that has none, which costs the same.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from llama_server import LlamaServer, run_llama_server
from llamacpp import play_in_turns, version
from playing import RANKS, TRACE, Session, machine, open_midfill, percentiles
from rich.console import Console
from rich.table import Table
from sides import LlamaVimSide, MidfillSide, Timed

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.training.interchange.from_gguf import read_tokenizer
from inference.training.interchange.to_gguf import write_gguf

FIELDS = ("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id")
SLOTS = 4
INFILL_SLOT = 3  # midfill has one document, and takes the first slot
OURS, THEIRS = "midfill, EFIM", "/infill, as llama.vim"


async def compare(server: LlamaServer, settings: dict[str, Any], session: Session) -> dict[str, list[Timed]]:
    """Both sides' keystrokes."""
    given = {
        "engine": f"llama-server={server.url}",
        "maxTokens": session.max_new_tokens,
        "multiLine": False,
        **settings,
    }
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(open_midfill(session.text, session.language, given))
        theirs = LlamaVimSide(THEIRS, server, INFILL_SLOT, session.text, session)
        return await play_in_turns([MidfillSide(OURS, target), theirs], session)


def figures(times: dict[str, list[Timed]]) -> dict[str, Any]:
    """Percentiles of each side, and the ratios of the other side's to midfill's."""
    taken = {name: percentiles([timed.milliseconds for timed in found]) for name, found in times.items()}
    return {
        "sides": {
            name: {
                "time_to_suggestion_ms": taken[name],
                "recomputed_tokens": percentiles([timed.recomputed_tokens for timed in found]),
                "generated_tokens_mean": round(mean(timed.generated_tokens for timed in found), 2),
            }
            for name, found in times.items()
        },
        "times": {rank: round(taken[THEIRS][rank] / taken[OURS][rank], 2) for rank in taken[OURS]},
    }


def main(
    server: Annotated[Path, typer.Option(help="llama-server.")],
    gguf: Annotated[Path | None, typer.Option(help="A GGUF file; by default that of `tiny`.")] = None,
    fim_ids: Annotated[str, typer.Option(help="Ids of the prefix, suffix and middle marker, if it has none.")] = "",
    trace: Annotated[Path, typer.Option(help="A recorded session.")] = TRACE,
    language: Annotated[str, typer.Option(help="The document's language id.")] = "rust",
    start: Annotated[int, typer.Option(min=0, help="The first transaction to play.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="How many to count.")] = 100,
    warm_up: Annotated[int, typer.Option(min=0, help="How many to play before.")] = 5,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 16,
    threads: Annotated[int, typer.Option(min=1, help="Of llama-server.")] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Measure, and print a line per side."""
    session = Session.read(trace, language, start, limit, warm_up, max_new_tokens)
    with tempfile.TemporaryDirectory() as folder:
        command, settings = [str(server)], {"model": str(BUNDLED_FOLDERS["tiny"])}
        if gguf is None:
            gguf = Path(folder) / "tiny.gguf"
            write_gguf("tiny", gguf)
        elif fim_ids:
            ids = tuple(int(id_) for id_ in fim_ids.split(","))
            definition = read_tokenizer(gguf, ids)  # engines receive ids, so the markers' names are ours to choose
            (Path(folder) / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")
            for field, id_ in zip(FIELDS, ids, strict=True):
                command += ["--override-kv", f"tokenizer.ggml.{field}=int:{id_}"]
            settings = {"model": folder, "fimFormat": "midfill", "healing": "on"}
        with run_llama_server(command, gguf, threads, spm=False, slots=SLOTS) as running:
            result = figures(asyncio.run(compare(running, settings, session)))
    table = Table("side", *(f"p{rank}, ms" for rank in RANKS), "recomputed", "new tokens")
    for name, row in result["sides"].items():
        cells = [f"{milliseconds:.1f}" for milliseconds in row["time_to_suggestion_ms"].values()]
        recomputed = " / ".join(f"{count:.0f}" for count in row["recomputed_tokens"].values())
        table.add_row(name, *cells, recomputed, f"{row['generated_tokens_mean']:.1f}")
    console = Console(width=120)
    console.print(table)
    console.print("times:", result["times"])
    if json_file is not None:
        facts = {"machine": machine(), "llama.cpp": version(server), "threads": threads, "keystrokes": limit}
        json_file.write_text(json.dumps({**facts, **result}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
