"""Measures what the source `staged` is worth: how probable the subjects of a repository's commits are to a model.

    python bench/staged.py REPOSITORY [--model bundled] [--commits 30] [--seed 1]

Each commit is staged in a clone, as before it was made. A subject's words behind the first are written by force, once
without text of other files and once with what is staged; it prints the mean negative log-probability of their tokens,
and the difference with its 95 % interval by commits. Counts: the machine and what else it does change nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from inference.backends.model import Chunk
from inference.engine.engine import Engine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.text.prompts import tokenize_prompt
from lsp_server.documents.documents import Document, Position
from lsp_server.suggesting.open_documents import EditorWorkspace
from midfill_lab.evaluation.runner import mean
from protocol.messages import Prompt
from protocol.settings import BUNDLED_MODEL, Settings

CONTEXT_TOKENS = 4096
CHUNK_TOKENS = 256
TEMPLATE = """
# Please enter the commit message for your changes. Lines starting
# with '#' will be ignored, and an empty message aborts the commit.
#
# On branch main
# Changes to be committed:
"""


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    found = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return found.stdout.decode(errors="replace")


def stage(clone: Path, commit: str) -> str:
    """Stage the commit on its parent; the comment that git writes below the message."""
    git(clone, "update-ref", "--no-deref", "HEAD", f"{commit}^")
    git(clone, "read-tree", commit)
    names = git(clone, "diff", "--cached", "--name-only").splitlines()
    return TEMPLATE + "".join(f"#\tmodified:   {name}\n" for name in names)


async def prompt_of(clone: Path, head: str, comment: str, settings: Settings) -> Prompt:
    """The prompt behind the beginning of the message."""
    workspace = EditorWorkspace.of_folders([clone.as_uri()])
    uri = (clone / ".git/COMMIT_EDITMSG").as_uri()
    document, cursor = Document.from_text(uri, "git-commit", 1, f"{head}\n{comment}"), Position(0, len(head))
    await workspace.gather(document, cursor, settings)
    return workspace.planner(document, settings).plan(cursor).prompt


def surprise(engine: Engine, prompt: Prompt, text: str) -> list[float]:
    """The negative log-probabilities of the text's tokens behind the prompt, in nats."""
    model, expected = engine._model, engine.tokenizer.encode(text)
    known = tokenize_prompt(prompt, engine.tokenizer, CONTEXT_TOKENS, len(expected)).token_ids
    workspace = model.new_workspace()
    for start in range(0, len(known) - 1, CHUNK_TOKENS):
        model.forward([Chunk(known[start : min(start + CHUNK_TOKENS, len(known) - 1)], start, workspace)])
    last = Chunk(known[-1:] + expected[:-1], len(known) - 1, workspace, wanted=len(expected), forced=expected)
    return [-choice.logprob for choice in model.forward([last])[0]]


def main(
    repository: Path,
    model: Annotated[str, typer.Option(help="Model to ask.")] = BUNDLED_MODEL,
    commits: Annotated[int, typer.Option(min=1, help="Number of commits, drawn by the seed.")] = 30,
    seed: int = 1,
) -> None:
    """Print the figures."""
    engine = load_engine(EngineOptions(model=model, context_tokens=CONTEXT_TOKENS, store_budget_bytes=0))
    without, staged, gains = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch, "clone")
        git(repository, "clone", "--quiet", "--shared", "--no-checkout", str(repository), str(clone))
        subjects = git(clone, "log", "--no-merges", "--min-parents=1", "--format=%H %s").splitlines()
        chosen = [line.split(" ", 2) for line in subjects if line.count(" ") > 1]
        for commit, first, rest in Random(seed).sample(chosen, min(commits, len(chosen))):
            comment = stage(clone, commit)
            pair = []
            for on in (False, True):
                settings = Settings(model=model, other_files=on, context_sources=("staged",))
                prompt = asyncio.run(prompt_of(clone, first, comment, settings))
                pair.append(surprise(engine, prompt, f" {rest}"))
            without += pair[0]
            staged += pair[1]
            gains.append((sum(pair[1]) - sum(pair[0])) / len(pair[0]))
    gain = mean(gains)
    assert gain is not None, "there is a commit"
    better = sum(each < 0 for each in gains)
    print(f"{len(gains)} commits, {len(without)} tokens: {sum(without) / len(without):.2f} nats a token without,")
    print(f"{sum(staged) / len(staged):.2f} with what is staged; by commits {gain.value:+.2f}", end=" ")
    print(f"({gain.interval[0]:+.2f} to {gain.interval[1]:+.2f}), better in {better}")


if __name__ == "__main__":
    typer.run(main)
