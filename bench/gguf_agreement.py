"""Compares GGUF files run by midfill with llama.cpp's server on the same files: tokens of text, and greedy choices.

    python bench/gguf_agreement.py FILE.gguf... --server PATH/TO/llama-server [--lines 20000] [--json FILE]

Text comes from the standard library, in pieces of 40 lines. For the choices, llama-server continues a prompt of token
ids greedily, and midfill computes the same tokens: at every position it either chooses the same next token or prefers
another one by some margin, in nats. Both are also compared with the dequantized model in float32, since both quantize
activations. All the files need FIM markers: `gguf-new-metadata --special-token-by-id fim_pre ID` gives them some.
"""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from figures import JsonFile, machine, write
from llama_server import LlamaServer, run_llama_server
from rich.console import Console
from rich.table import Table

from inference.backends.chunk import Chunk
from inference.backends.model import Model
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint, open_checkpoint
from inference.loading.llama import load_decoder
from inference.loading.options import EngineOptions
from inference.text.tokenization import TextTokenizer

PIECE_LINES = 40
PROMPT_TOKENS = 256
CONTEXT_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Choices:
    """How two engines' greedy choices compare at the positions of one text."""

    positions: int
    different: int
    largest_margin: float  # nats by which the first engine prefers its own token, where they differ
    margins_above_half: int  # of them more than 0.5


def pieces_of_text(lines: int) -> list[str]:
    """Pieces of PIECE_LINES lines from all over the standard library, those with the most foreign letters included."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore").splitlines(keepends=True)
        found += ["".join(text[first : first + PIECE_LINES]) for first in range(0, len(text), PIECE_LINES)]
    wanted = lines // PIECE_LINES
    foreign = sorted(found, key=lambda piece: -sum(not character.isascii() for character in piece))
    return [*foreign[: wanted // 4], *found[:: max(1, len(found) // (wanted - wanted // 4))]][:wanted]


def lines_that_differ(tokenizer: TextTokenizer, server: LlamaServer, pieces: Sequence[str]) -> Iterator[str]:
    """The lines of the pieces whose tokens differ; a whole piece if none of its lines does alone."""
    for piece in pieces:
        if list(tokenizer.encode(piece)) == server.tokenize(piece):
            continue
        lines = piece.splitlines(keepends=True)
        yield from [line for line in lines if list(tokenizer.encode(line)) != server.tokenize(line)] or [piece]


def continuation(server: LlamaServer, prompt: Sequence[int], count: int) -> list[int]:
    """llama-server's greedy continuation of token ids."""
    body = {"prompt": list(prompt), "n_predict": count, "temperature": 0.0, "ignore_eos": True, "return_tokens": True}
    return [int(token_id) for token_id in server.post("/completion", body | {"cache_prompt": False})["tokens"]]


def greedy(model: Model, token_ids: Sequence[int], first: int) -> list[int]:
    """The model's next token behind each of `token_ids` from position `first` on."""
    workspace = model.new_workspace()
    (chosen,) = model.forward([Chunk(token_ids, 0, workspace, len(token_ids) - first)])
    return [choice.token_id for choice in chosen]


def compare(model: Model, texts: Sequence[tuple[list[int], list[int]]], others: Sequence[list[int]]) -> Choices:
    """The model's choices behind prompts and their continuations, against the choices `others`."""
    positions, margins = 0, []
    for (prompt, new), theirs in zip(texts, others, strict=True):
        token_ids = [*prompt, *new[:-1]]
        workspace = model.new_workspace()
        (chosen,) = model.forward([Chunk(token_ids, 0, workspace, len(new))])
        for place, (ours, other) in enumerate(zip(chosen, theirs, strict=True), start=len(prompt) - 1):
            positions += 1
            if ours.token_id != other:
                pair = np.array([ours.token_id, other], dtype=np.int64)
                ((choice,),) = model.forward([Chunk(token_ids[place : place + 1], place, workspace, 1, pair)])
                margins.append(choice.logprob - math.log1p(-min(math.exp(choice.logprob), 1 - 1e-9)))
    return Choices(positions, len(margins), max(margins, default=0.0), sum(margin > 0.5 for margin in margins))


def load(checkpoint: Checkpoint, threads: int, *, kernel: bool) -> Model:
    """The file on the kernel as it is quantized, or dequantized in float32."""
    shape = checkpoint.architecture
    assert isinstance(shape, Architecture), f"{checkpoint.path} is not run by midfill's decoder"
    options = EngineOptions(kernel=kernel, threads=threads)
    cpu = torch.device("cpu")
    return load_decoder(checkpoint, shape, CONTEXT_TOKENS, cpu, torch.float32, options, lambda *_: None)


def measure(file: Path, program: Path, threads: int, lines: int, prompts: int, new_tokens: int) -> dict[str, Any]:
    """What one file shows, by name."""
    checkpoint = open_checkpoint(file, str(file))
    tokenizer = checkpoint.tokenizer()
    pieces = pieces_of_text(lines)
    with run_llama_server([str(program)], file, threads, spm=False) as server:
        differing = len(list(lines_that_differ(tokenizer, server, pieces)))
        texts = []
        for piece in pieces[-1 :: -max(1, len(pieces) // prompts)][:prompts]:
            prompt = list(tokenizer.encode(piece))[:PROMPT_TOKENS]
            texts.append((prompt, continuation(server, prompt, new_tokens)))
    theirs = [new for _, new in texts]
    kernel, float32 = (load(checkpoint, threads, kernel=kernel) for kernel in (True, False))
    ours = [greedy(kernel, [*prompt, *new[:-1]], len(prompt) - 1) for prompt, new in texts]
    return {
        "file": file.name,
        "lines": sum(piece.count("\n") for piece in pieces),
        "tokens": sum(len(tokenizer.encode(piece)) for piece in pieces),
        "lines_with_other_tokens": differing,
        "kernel_and_llama": asdict(compare(kernel, texts, theirs)),
        "float32_and_kernel": asdict(compare(float32, texts, ours)),
        "float32_and_llama": asdict(compare(float32, texts, theirs)),
    }


def main(
    files: Annotated[list[Path], typer.Argument(help="GGUF files of the Llama family.")],
    server: Annotated[Path, typer.Option(help="llama-server.")],
    lines: Annotated[int, typer.Option(min=40, help="Lines of text to tokenize.")] = 20_000,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts to continue.")] = 20,
    new_tokens: Annotated[int, typer.Option(min=2, help="Tokens of each continuation.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Of either side.")] = 2,
    json_file: JsonFile = None,
) -> None:
    """Compare, and print a line per file."""
    torch.set_num_threads(threads)
    pairs = ("kernel, llama.cpp", "float32, kernel", "float32, llama.cpp")
    table = Table("file", "lines", "tokens", "lines that differ", *(f"{pair}: choices that differ" for pair in pairs))
    found = [measure(file, server, threads, lines, prompts, new_tokens) for file in files]
    for name, *counts, first, second, third in (figures.values() for figures in found):
        shown = (
            f"{each['different']} of {each['positions']}, by {each['largest_margin']:.2f} at most"
            for each in (first, second, third)
        )
        table.add_row(name, *(f"{count:,}" for count in counts), *shown)
    Console(width=160).print(table)
    write(json_file, {"machine": machine(), "files": found})


if __name__ == "__main__":
    typer.run(main)
