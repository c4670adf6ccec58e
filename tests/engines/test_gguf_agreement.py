"""GGUF files on midfill and on a real llama-server: the same tokens of text, and the same choices up to near ties.

`TEST_GGUF_FILES` names the files, separated by colons, instead of the bundled model's. `-s` shows the figures.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from bench.llama_server import LlamaServer, run_llama_server
from inference.backends.model import Chunk, Model
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS, Checkpoint, open_checkpoint
from inference.checkpoints.gguf.metadata import read_gguf_header
from inference.checkpoints.gguf.tokenizer import PRE_TOKENIZERS, UNNAMED, gguf_tokenizer
from inference.loading.kernel import load_on_kernel
from inference.loading.options import EngineOptions
from inference.text.tokenization import TextTokenizer
from tests.inference.tiny import MARKERS
from tests.inference.tiny_gguf import tokenizer_fields, write_file

pytestmark = pytest.mark.engines

LINES, PIECE_LINES = 20_000, 40
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 20, 256, 64
THREADS = 2
MOST_DIFFERENT = 0.05  # of the positions
MOST_MEMORY = 1.1  # of the file's size
LARGEST_MARGIN = 0.6  # nats: both engines quantize activations to 8 bits, so near ties flip
SPLIT_PIECES = 20
BY_CASE = {"gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie", "tekken"}
"""Of these, llama.cpp takes each letter beyond ASCII for both upper and lower case; midfill does as the models."""
STRANGE = "x = 12345.678 + 0x1F\n\tif a['it''s'] >= b:  # ¿qué? 中文1234 한국어 naïve Éa ÀB\n\n\n    return f'{x:.2f}'\n"
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
    """llama-server's greedy continuation of token ids, up to its end."""
    body = {"prompt": list(prompt), "n_predict": NEW_TOKENS, "temperature": 0.0}
    answer = server.post("/completion", {**body, "return_tokens": True, "cache_prompt": False})
    return [int(token_id) for token_id in answer["tokens"]]


def choices(model: Model, token_ids: Sequence[int], count: int) -> list[int]:
    """The model's next token behind each of the last `count` tokens."""
    (chosen,) = model.forward([Chunk(token_ids, 0, model.new_workspace(), count)])
    return [choice.token_id for choice in chosen]


def margins(model: Model, texts: Sequence[tuple[list[int], list[int]]], others: Sequence[Sequence[int]]) -> Iterator[float]:
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
    return load_on_kernel(checkpoint, shape, 2048, "float32", options, lambda *_: None)


@pytest.fixture(scope="module")
def split_text() -> str:
    return "".join(pieces_of_text()[:: LINES // PIECE_LINES // SPLIT_PIECES]) + STRANGE


@pytest.fixture(scope="module")
def crossing_vocabulary(tmp_path_factory: pytest.TempPathFactory, split_text: str) -> Path:
    """A tokenizer.json whose merges cross words, spaces and punctuation, so that only the splits keep them apart."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=6000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, max_token_length=12
    )
    lines = [line[at : at + 30] for line in split_text.splitlines(keepends=True) for at in range(0, len(line), 30)]
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens([AddedToken(marker, special=True) for marker in MARKERS])
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS.keys() - {UNNAMED}))
def test_each_pre_tokenizer_splits_text_as_llama_cpp_does(
    engines_folder: Path, crossing_vocabulary: Path, split_text: str, tmp_path: Path, name: str
) -> None:
    text = split_text.encode("ascii", "ignore").decode() if name in BY_CASE else split_text
    fields = {"general.architecture": "llama"} | tokenizer_fields(crossing_vocabulary, name)
    file = write_file(tmp_path / "model.gguf", fields, {})
    program = engines_folder / "llama.cpp" / "bin" / "llama-tokenize"
    options = ["--ids", "--stdin", "--no-bos", "--no-parse-special", "--no-escape", "--log-disable"]
    done = subprocess.run([program, "--model", file, *options], input=text.encode(), capture_output=True, check=True)
    tokenizer = gguf_tokenizer(read_gguf_header(file))
    ours, theirs = list(tokenizer.encode(text)), json.loads(done.stdout)
    place = next((place for place, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
    if place is not None:
        spelled = [b"|".join(tokenizer.bytes_of(id_) or b"" for id_ in ids[place : place + 8]) for ids in (ours, theirs)]
        pytest.fail(f"the tokens differ from the {place}th on: {spelled[0]!r}, and llama.cpp's {spelled[1]!r}")
    assert len(ours) == len(theirs)


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
    share = kernel.weights_bytes / file.stat().st_size
    print(f"{file.name}: in memory the weights take {share:.2f} of the file")  # noqa: T201
    assert share < MOST_MEMORY
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
