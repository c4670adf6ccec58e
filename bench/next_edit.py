"""Counts what next edits cost: recomputed tokens a request on recorded sessions, and tokens a forward with copy drafts.

    python bench/next_edit.py residency TRACE --tokenizer TOKENIZER.json [--layout zeta-2.1] [--from 20000] [--to 20800]
    python bench/next_edit.py drafts SCENARIOS --tokenizer TOKENIZER.json

`residency`: each edit is a request. A prompt recomputes what lies behind its longest common prefix with the best of
the last 8 prompts. A prompt laid anew at rest is computed ahead of the next key, and counted apart. `drafts`: recorded
answers are written again by the engine's drafter, which has the region as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from inference.engine.drafts import MOST_DRAFTED, Copy, Drafter, Odds
from inference.text.token_ids import TokenIds, common_prefix_length, packed
from inference.text.tokenization import TextTokenizer, read_tokenizer
from lsp_server.documents.documents import Document, Position
from lsp_server.next_edit.families import FORMATS, format_named
from lsp_server.next_edit.formats import LaidPrompt, NextEditFormat, next_anchor
from lsp_server.next_edit.history import PAUSE_S, History
from lsp_server.next_edit.regions import RegionAnchor
from midfill.replay.results import percentile
from midfill.replay.trace import Step, Trace, play, read_trace, text_at
from midfill_lab.evaluation.scenarios import read_answers, read_scenarios, recorder_of
from protocol.messages import Snippet

PROMPTS = 8  # that are resident
RELATED = Path(__file__).parents[1] / "lsp_server/documents/documents.py"
RELATED_CHARS = 3_400  # about 1,000 tokens
_MARKER_IDS = 2**24  # and above: of markers that the tokenizer lacks

app = typer.Typer(add_completion=False)
Tokenizer = Annotated[Path, typer.Option("--tokenizer", exists=True, help="A tokenizer.json.")]


@dataclass
class Residency:
    """Lays a prompt after each edit, and counts the tokens that are not resident."""

    layout: NextEditFormat
    document: Document
    encode: Callable[[LaidPrompt], TokenIds]
    related: Snippet
    rest_s: float
    tells_moves: bool
    history: History = field(default_factory=History)
    anchor: RegionAnchor | None = None
    resident: deque[TokenIds] = field(default_factory=lambda: deque(maxlen=PROMPTS))
    cursor: Position = field(default_factory=lambda: Position(0, 0))
    now: float = 0.0
    prompts: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    rests: list[int] = field(default_factory=list)

    def step(self, step: Step) -> None:
        """Apply a transaction and ask; before it, lay the prompt at rest if there was one."""
        time = self.now if step.time is None else step.time
        paused, self.now = self.anchor is not None and time - self.now >= self.rest_s, time
        if paused:
            self.rests.append(self._lay(at_rest=True))
        if step.moved_to is not None:
            self.cursor = self.document.nearest(step.moved_to)
            if self.tells_moves and self.history.closes(self.now, self.document.uri, self.cursor.line):
                self.rests.append(self._lay(at_rest=True))
        for edit in step.edits:
            before = list(self.document.lines)
            change = self.document.apply(edit)
            self.history = self.history.edited(self.document.uri, before, self.document.lines, change, time)
            self.anchor = None if self.anchor is None else self.anchor.followed(change)
        self.cursor = self.document.nearest(step.cursor)
        self.requests.append(self._lay(at_rest=False))
        self.prompts.append(len(self.resident[-1]))

    def _lay(self, *, at_rest: bool) -> int:
        lines, row = self.document.lines, self.cursor.line
        known = self.anchor
        self.anchor = next_anchor(
            self.layout, self.document.uri, lines, row, self.history, [self.related], known, at_rest=at_rest
        )
        ids = self.encode(self.layout.lay(self.anchor, lines, self.cursor))
        missing = len(ids) - max((common_prefix_length(ids, other) for other in self.resident), default=0)
        self.resident.append(ids)
        return missing


def encoder(tokenizer: TextTokenizer) -> Callable[[LaidPrompt], TokenIds]:
    """Token ids of a laid prompt; a marker is one token, whether the tokenizer has it or not."""
    markers: dict[str, int] = {}

    def encode(prompt: LaidPrompt) -> TokenIds:
        ids = packed()
        for place, part in enumerate(prompt.parts):
            if place % 2:
                ids.append(markers.setdefault(part, _MARKER_IDS + len(markers)))
            else:
                ids.extend(tokenizer.encode(part))
        return ids

    return encode


@app.command()
def residency(
    trace: Annotated[Path, typer.Argument(exists=True)],
    tokenizer: Tokenizer,
    layout: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(FORMATS)}; repeatable; all by default.")] = None,
    begin: Annotated[int, typer.Option("--from", help="First transaction.")] = 20_000,
    end: Annotated[int, typer.Option("--to", help="Transaction to stop before.")] = 20_800,
    rest: Annotated[float | None, typer.Option(help="Seconds of a rest; else 1, or 2 if times are whole.")] = None,
    moves: Annotated[bool, typer.Option(help="The cursor's moves are known before the next key.")] = True,
) -> None:
    """Recomputed tokens a request, on part of a recorded session."""
    session, encode = read_trace(trace), encoder(read_tokenizer(tokenizer))
    related = Snippet("related.py", RELATED.read_text(encoding="utf-8")[:RELATED_CHARS])
    rest_s = rest if rest is not None else PAUSE_S if _has_fractions(session) else 2 * PAUSE_S
    table = Table(title=f"{session.name}, {begin} to {end}, a rest of {rest_s:g} s", title_justify="left")
    for column in ("layout", "prompt", "requests", "mean", "p50", "p90", "rests", "mean of a rest"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for name in layout or list(FORMATS):
        document = Document.from_text("session", "", 0, text_at(session, begin))
        run = Residency(format_named(name), document, encode, related, rest_s, moves)
        for step in play(session, begin, end - begin):
            run.step(step)
        cells = [fmean(run.prompts), len(run.requests), fmean(run.requests)]
        cells += [percentile(run.requests, 0.5), percentile(run.requests, 0.9)]
        cells += [len(run.rests), fmean(run.rests or [0])]
        table.add_row(name, *(f"{cell:,.0f}" for cell in cells))
    Console().print(table)


MODELS = ("sweep-next-edit-0.5B", "sweep-next-edit-1.5B", "sweep-next-edit-7B", "zeta-2")


@dataclass
class Forwards:
    """Counts of answers that were written again."""

    answers: int = 0
    tokens: int = 0  # with the one that ends an answer
    forwards: int = 0
    drafted: int = 0

    def write(self, drafter: Drafter, answer: TokenIds) -> None:
        """Write an answer: each forward verifies a draft, and chooses one token more."""
        self.answers += 1
        self.tokens += len(answer) + 1
        written = 0
        while written <= len(answer):
            draft = drafter.draft("", MOST_DRAFTED)
            right = common_prefix_length(draft, answer[written:])
            drafter.verified(answer[written : written + right + 1], right)
            written += right + 1
            self.forwards += 1
            self.drafted += len(draft)


@app.command()
def drafts(scenarios: Annotated[Path, typer.Argument(exists=True, file_okay=False)], tokenizer: Tokenizer) -> None:
    """Tokens a forward of recorded answers, with copy drafts and with prompt lookup alone."""
    reader = read_tokenizer(tokenizer)
    table = Table(title="tokens a forward", title_justify="left")
    for column in ("model", "answers", "tokens", "prompt lookup", "drafted", "copy", "drafted"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for model in MODELS:
        counts = (Forwards(), Forwards())
        for answer in recorded_answers(scenarios, model):
            for count, copies in zip(counts, (False, True), strict=True):
                rewritten(answer, reader, copies=copies, count=count)
        cells = [str(counts[0].answers), str(counts[0].tokens)]
        for count in counts:
            cells += [f"{count.tokens / count.forwards:.2f}", f"{count.drafted / count.forwards:.1f}"]
        table.add_row(model, *cells)
    Console().print(table)


class Written(NamedTuple):
    """A recorded answer, its prompt, and the answer that would change nothing."""

    text: str
    prompt: str
    unchanged: str


def recorded_answers(folder: Path, model: str) -> Iterator[Written]:
    """The answers to prompts of the scenarios' documents; later ones are of documents that an answer changed."""
    recorder = recorder_of(model)
    for scenario in read_scenarios(folder):
        for recorded in read_answers(folder, scenario, model):
            if (cursor := recorded.cursor(scenario)) is not None:
                prompt = recorder.lay(scenario, recorder.place(scenario, cursor))
                yield Written(recorded.text, recorded.prompt, prompt.draft)


def rewritten(answer: Written, reader: TextTokenizer, *, copies: bool, count: Forwards) -> None:
    """Count what it takes to write the answer again."""
    copy = Copy(reader.encode(answer.unchanged), partial(_ends_line, reader)) if copies else None
    seen, odds = packed(reader.encode(answer.prompt)), (Odds(0.9), Odds(0.5))
    count.write(Drafter(seen, "", reader.encode, lambda _: False, *odds, copy), reader.encode(answer.text))


def _ends_line(reader: TextTokenizer, token_id: int) -> bool:
    return b"\n" in (reader.bytes_of(token_id) or b"")


def _has_fractions(session: Trace) -> bool:
    return any(time % 1 for time in session.times)


if __name__ == "__main__":
    app()
