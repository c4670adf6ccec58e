"""GGUF files on midfill and on a real llama-server: the same tokens of text, and the same choices up to near ties.

`TEST_GGUF_FILES` names the files, separated by colons, instead of the bundled model's. `-s` shows the figures.
"""

from __future__ import annotations

import math
import os
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.llama_server import LlamaServer, run_llama_server
from inference.backends.model import Chunk, Model
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS, Checkpoint, open_checkpoint
from inference.loading.components import load_decoder
from inference.loading.options import EngineOptions
from inference.text.tokenization import TextTokenizer

pytestmark = pytest.mark.engines

LINES, PIECE_LINES = 20_000, 40
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 20, 256, 64
THREADS = 2
MOST_DIFFERENT = 0.05  # of the positions
LARGEST_MARGIN = 0.6  # nats: both engines quantize activations to 8 bits, so near ties flip
FILES = os.environ.get("TEST_GGUF_FILES", "").split(":")


def pieces_of_text() -> list[str]:
    """Pieces from all over the standard library, those with the most foreign letters included."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore").splitlines(keepends=True)
        found += ["".join(text[first : first + PIECE_LINES]) for first in range(0, len(text), PIECE_LINES)]
    wanted = LINES // PIECE_LINES
    foreign = sorted(found, key=lambda piece: -sum(not character.isascii() for character in piece))
    return [*foreign[: wanted // 4], *found[:: max(1, len(found) // (wanted - wanted // 4))]][:wanted]


def lines_that_differ(tokenizer: TextTokenizer, server: LlamaServer, pieces: Sequence[str]) -> Iterator[str]:
    """The lines of the pieces whose tokens differ; a whole piece if none of its lines does alone."""
    for piece in pieces:
        if list(tokenizer.encode(piece)) == server.tokenize(piece):
            continue
        lines = piece.splitlines(keepends=True)
        yield from [line for line in lines if list(tokenizer.encode(line)) != server.tokenize(line)] or [piece]


def continuation(server: LlamaServer, prompt: Sequence[int]) -> list[int]:
    """llama-server's greedy continuation of token ids."""
    body = {"prompt": list(prompt), "n_predict": NEW_TOKENS, "temperature": 0.0, "ignore_eos": True}
    answer = server.post("/completion", {**body, "return_tokens": True, "cache_prompt": False})
    return [int(token_id) for token_id in answer["tokens"]]


def choices(model: Model, token_ids: Sequence[int], count: int) -> list[int]:
    """The model's next token behind each of the last `count` tokens."""
    (chosen,) = model.forward([Chunk(token_ids, 0, model.new_workspace(), count)])
    return [choice.token_id for choice in chosen]


def margins(
    model: Model, texts: Sequence[tuple[list[int], list[int]]], others: Sequence[Sequence[int]]
) -> Iterator[float]:
    """By how many nats the model prefers its own token, where its choice behind a text is not that of `others`."""
    for (prompt, new), theirs in zip(texts, others, strict=True):
        token_ids = [*prompt, *new[:-1]]
        workspace = model.new_workspace()
        (chosen,) = model.forward([Chunk(token_ids, 0, workspace, len(new))])
        for place, (ours, other) in enumerate(zip(chosen, theirs, strict=True), start=len(prompt) - 1):
            if ours.token_id != other:
                pair = np.array([ours.token_id, other], dtype=np.int64)
                ((choice,),) = model.forward([Chunk(token_ids[place : place + 1], place, workspace, 1, pair)])
                yield choice.logprob - math.log1p(-min(math.exp(choice.logprob), 1 - 1e-9))


def load(checkpoint: Checkpoint, *, kernel: bool) -> Model:
    """The file on the kernel as it is quantized, or dequantized in float32."""
    shape = checkpoint.architecture
    assert isinstance(shape, Architecture), f"{checkpoint.path} is not run by midfill's decoder"
    options = EngineOptions(kernel=kernel, threads=THREADS)
    return load_decoder(checkpoint, shape, 2048, torch.device("cpu"), torch.float32, options, lambda *_: None)


@pytest.mark.parametrize("name", FILES)
def test_the_same_tokens_and_the_same_choices_but_for_near_ties(llama_server_program: Path, name: str) -> None:
    file = Path(name) if name else next(BUNDLED_FOLDERS["bundled"].glob("*.gguf"))
    checkpoint = open_checkpoint(file, str(file))
    tokenizer = checkpoint.tokenizer()
    pieces = pieces_of_text()
    with run_llama_server([str(llama_server_program)], file, THREADS, spm=False) as server:
        assert list(lines_that_differ(tokenizer, server, pieces)) == []
        prompts = [list(tokenizer.encode(piece))[:PROMPT_TOKENS] for piece in pieces[:: len(pieces) // PROMPTS]]
        texts = [(prompt, continuation(server, prompt)) for prompt in prompts]
    theirs = [new for _, new in texts]
    kernel, float32 = (load(checkpoint, kernel=kernel) for kernel in (True, False))
    ours = [choices(kernel, [*prompt, *new[:-1]], len(new)) for prompt, new in texts]
    positions = sum(map(len, theirs))
    for pair, model, others in (
        ("midfill, llama.cpp", kernel, theirs),
        ("float32, midfill", float32, ours),
        ("float32, llama.cpp", float32, theirs),
    ):
        found = list(margins(model, texts, others))
        print(f"{file.name}, {pair}: {len(found)} of {positions} differ, by {max(found, default=0):.2f}")  # noqa: T201
        assert len(found) <= MOST_DIFFERENT * positions
        assert max(found, default=0.0) < LARGEST_MARGIN
