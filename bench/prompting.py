"""Times an edit between the editor and the model: document, anchor, prompt and tokenizing, by document size.

    python bench/prompting.py [--lines 500 --lines 50000] [--edits 20000] [--json FILE]

Each document is the project's own Python source, repeated. A simulated user types, jumps every 30 edits and presses
Enter every 10; the sizes are interleaved. Prints milliseconds per edit, of wall clock and of CPU time (which other load
affects less), and the ratio to the smallest document.
"""

from __future__ import annotations

import random
import time
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from figures import JsonFile, machine, percentiles, write
from rich.console import Console
from rich.table import Table

from inference.checkpoints.checkpoint import find_checkpoint
from inference.text.prompts import tokenize_prompt
from inference.text.tokenization import TextTokenizer, read_tokenizer
from lsp_server.editing.documents import Document, Edit, Position
from lsp_server.prompts.planner import PromptPlanner
from lsp_server.prompts.windows import WindowBudget

EDITS_PER_TURN = 100


class Typist:
    """Edits one document, and times each edit."""

    def __init__(self, lines: list[str], count: int, tokenizer: TextTokenizer) -> None:
        text = "".join((lines * (count // len(lines) + 1))[:count])
        self.document = Document.from_text("file:///bench.py", "python", 1, text)
        self.planner = PromptPlanner(self.document, WindowBudget())
        self.milliseconds: list[float] = []
        self.cpu_milliseconds: list[float] = []  # CPU time, without other processes' share
        self._tokenizer = tokenizer
        self._random = random.Random(0)
        self._cursor = Position(count // 2, 0)

    def type(self, edits: int) -> None:
        """Make `edits` timed edits, each followed by a prompt."""
        for number in range(edits):
            if number % 30 == 0:
                self._cursor = Position(self._random.randrange(len(self.document.lines)), 0)
            line, column = self._cursor
            newline = number % 10 == 9
            started, cpu_started = time.perf_counter(), time.thread_time()
            self.planner.edited(self.document.apply(Edit(self._cursor, self._cursor, "\n" if newline else "x")))
            self._cursor = Position(line + 1, 0) if newline else Position(line, column + 1)
            tokenize_prompt(self.planner.plan(self._cursor).prompt, self._tokenizer, 4096, 64)
            self.milliseconds.append((time.perf_counter() - started) * 1000)
            self.cpu_milliseconds.append((time.thread_time() - cpu_started) * 1000)


def main(
    lines: Annotated[list[int] | None, typer.Option(help="Document sizes.")] = None,
    edits: Annotated[int, typer.Option(help="Edits per document.")] = 20_000,
    json_file: JsonFile = None,
) -> None:
    """Time edits in documents of several sizes."""
    sizes = lines or [500, 50_000]
    source = [line for path in sorted(Path("lsp_server").rglob("*.py")) for line in path.read_text().splitlines(True)]
    tokenizer = read_tokenizer(find_checkpoint("tiny").folder / "tokenizer.json")
    typists = {size: Typist(source, size, tokenizer) for size in sizes}
    for _ in range(edits // EDITS_PER_TURN):
        for typist in typists.values():
            typist.type(EDITS_PER_TURN)
    figures = {size: percentiles(typist.milliseconds, 6) for size, typist in typists.items()}
    cpu_figures = {size: percentiles(typist.cpu_milliseconds, 6) for size, typist in typists.items()}
    table = Table("lines", "clock", "p50 ms", "p95 ms", "p99 ms", f"p99 to that of {sizes[0]} lines")
    for clock, by_size in (("wall", figures), ("CPU", cpu_figures)):
        for size, figure in by_size.items():
            ratio = figure["p99"] / by_size[sizes[0]]["p99"]
            table.add_row(str(size), clock, *(f"{figure[rank]:.3f}" for rank in ("p50", "p95", "p99")), f"{ratio:.2f}")
    Console().print(table)
    given = {"machine": machine(), "date": str(date.today()), "edits": edits}
    write(json_file, {**given, "milliseconds": figures, "cpu_milliseconds": cpu_figures})


if __name__ == "__main__":
    typer.run(main)
