"""Compares keystrokes through midfill, on another engine, with that engine asked as its own clients ask it, in turns.

    python bench/engines.py --llama-server PATH [--model FILE.gguf --fim-ids 8,9,10] [--json FILE]
    python bench/engines.py --vllm PYTHON [--model FOLDER] [--json FILE]

midfill runs end to end: language server over stdio, core with `--engine`, EFIM, token ids. The other side asks the same
server: llama-server's `/infill` as llama.vim does, in another slot, or vLLM's `/v1/completions` as Continue does, in
PSM. Both are greedy and write up to 16 tokens of one line; they take turns within each key. The default model is
`tiny`. --fim-ids names the tokens that serve as prefix, suffix and middle marker of a GGUF file that has none, which
costs the same. `python -m midfill_lab.recipe base` makes a folder of such a file for vLLM.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from figures import RANKS, JsonFile, machine, percentiles, write
from llama_server import run_llama_server
from llamacpp import play_in_turns, ratios, version
from playing import TRACE, Session, open_midfill
from rich.console import Console
from rich.table import Table
from sides import ContinueSide, LlamaVimSide, MidfillSide, Side, Timed
from vllm_server import run_vllm, vllm_version

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.text.tokenization import read_tokenizer
from midfill.replay.trace import read_trace
from midfill_lab.recipe.to_gguf import write_gguf
from midfill_lab.training import from_gguf

FIELDS = ("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id")
SLOTS = 4
INFILL_SLOT = 3  # midfill has one document, and takes the first slot
OURS = "midfill, EFIM"


Rival = tuple[dict[str, Any], Callable[[Session], Side]]
"""A running engine: the settings with which midfill uses it, and the side that asks it as another client does."""


@contextmanager
def llama_server(program: Path, gguf: Path | None, fim_ids: str, threads: int) -> Iterator[Rival]:
    """llama-server with a GGUF file, by default that of `tiny`."""
    with tempfile.TemporaryDirectory() as folder:
        command, settings = [str(program)], {"model": str(BUNDLED_FOLDERS["tiny"])}
        if gguf is None:
            gguf = Path(folder) / "tiny.gguf"
            write_gguf("tiny", gguf)
        elif fim_ids:
            ids = tuple(int(id_) for id_ in fim_ids.split(","))
            # The engine receives ids, so the markers' names are ours to choose.
            definition = from_gguf.read_tokenizer(gguf, ids)
            (Path(folder) / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")
            for field, id_ in zip(FIELDS, ids, strict=True):
                command += ["--override-kv", f"tokenizer.ggml.{field}=int:{id_}"]
            settings = {"model": folder, "fimFormat": "midfill", "healing": "on"}
        with run_llama_server(command, gguf, threads, spm=False, slots=SLOTS) as running:
            yield (
                {**settings, "engine": f"llama-server={running.url}"},
                lambda session: LlamaVimSide("/infill, as llama.vim", session, running, INFILL_SLOT),
            )


@contextmanager
def vllm(python: Path, model: Path, threads: int) -> Iterator[Rival]:
    """vLLM with the model of a folder."""
    tokenizer = read_tokenizer(model / "tokenizer.json")
    with run_vllm(python, model, threads) as running:
        yield (
            {"model": str(model), "engine": f"openai={running.url}", "healing": "on"},
            lambda session: ContinueSide("PSM, as Continue", session, running, tokenizer),
        )


async def compare(rival: Rival, session: Session) -> dict[str, list[Timed]]:
    """Both sides' keystrokes, midfill's first."""
    settings, side = rival
    async with open_midfill(session, {"multiLine": False, **settings}) as target:
        return await play_in_turns([MidfillSide(OURS, target), side(session)], session)


def figures(ours: list[Timed], theirs: list[Timed]) -> dict[str, Any]:
    """Percentiles of both sides over the same keys, and the ratios of the other side's to midfill's."""
    taken = [percentiles([timed.milliseconds for timed in side]) for side in (ours, theirs)]
    return {
        "keystrokes": len(ours),
        "sides": [
            {
                "time_to_suggestion_ms": milliseconds,
                "recomputed_tokens": percentiles([timed.recomputed_tokens for timed in side]),
                "generated_tokens_mean": round(mean(timed.generated_tokens for timed in side), 2),
            }
            for side, milliseconds in zip((ours, theirs), taken, strict=True)
        ],
        "times": ratios(*taken),
    }


def asked(ours: list[Timed], theirs: list[Timed]) -> tuple[list[Timed], list[Timed]]:
    """The keys for which midfill asked the engine: the others type what was suggested before."""
    pairs = [pair for pair in zip(ours, theirs, strict=True) if pair[0].generated_tokens or pair[0].recomputed_tokens]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def main(
    llama: Annotated[Path | None, typer.Option("--llama-server", help="llama-server.")] = None,
    vllm_python: Annotated[Path | None, typer.Option("--vllm", help="Python of vLLM's environment.")] = None,
    model: Annotated[Path | None, typer.Option(help="A GGUF file, or a folder for vLLM; by default `tiny`.")] = None,
    fim_ids: Annotated[str, typer.Option(help="Ids of the prefix, suffix and middle marker, if it has none.")] = "",
    trace: Annotated[Path, typer.Option(help="A recorded session.")] = TRACE,
    language: Annotated[str, typer.Option(help="The document's language id.")] = "rust",
    start: Annotated[int, typer.Option(min=0, help="The first transaction to play.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="How many to count.")] = 100,
    warm_up: Annotated[int, typer.Option(min=0, help="How many to play before.")] = 5,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 16,
    threads: Annotated[int, typer.Option(min=1, help="Of the engine.")] = 2,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per side."""
    session = Session(read_trace(trace), language, start, limit, warm_up, max_new_tokens)
    if vllm_python is not None:
        running = vllm(vllm_python, model or BUNDLED_FOLDERS["tiny"], threads)
        engine = {"vLLM": vllm_version(vllm_python)}
    elif llama is not None:
        running, engine = llama_server(llama, model, fim_ids, threads), {"llama.cpp": version(llama)}
    else:
        raise typer.BadParameter("give --llama-server or --vllm")
    with running as rival:
        (_, ours), (name, theirs) = asyncio.run(compare(rival, session)).items()
    result = {"all keys": figures(ours, theirs), "keys that ask the engine": figures(*asked(ours, theirs))}
    table = Table("keys", "side", *(f"p{rank}, ms" for rank in RANKS), "recomputed", "new tokens", "times")
    for keys, found in result.items():
        for side, row in zip((OURS, name), found["sides"], strict=True):
            cells = [f"{milliseconds:.1f}" for milliseconds in row["time_to_suggestion_ms"].values()]
            recomputed = " / ".join(f"{count:.0f}" for count in row["recomputed_tokens"].values())
            times = "" if side == OURS else " / ".join(map(str, found["times"].values()))
            shown = f"{keys} ({found['keystrokes']})"
            table.add_row(shown, side, *cells, recomputed, f"{row['generated_tokens_mean']:.1f}", times)
    Console(width=140).print(table)
    write(json_file, {"machine": machine(), **engine, "threads": threads, "other_side": name, **result})


if __name__ == "__main__":
    typer.run(main)
