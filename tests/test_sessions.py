"""Sessions that nobody recorded: what they recompute stays low, and prompts say what the documents say."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from lsp_server.documents.documents import Document, Position
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.replay.player import EngineCore
from midfill.replay.results import percentile
from protocol.messages import Completion, CompletionRequest, cache_outcome
from protocol.settings import TINY_MODEL, Settings
from tests.sessions import Key, Person, Weights, session

ROOT = Path(__file__).parents[1]
KEYS = 700
WRITING: Weights = {
    Person.write: 2,
    Person.correct: 3,
    Person.complete_word: 3,
    Person.open_brackets: 2,
    Person.look_up: 3,
    Person.jump: 2,
    Person.undo: 0.5,
}


def sources(pattern: str) -> list[str]:
    """The files of this repository that match, of at least 40 lines each."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern))]
    return [text for text in texts if text.count("\n") >= 40]


def in_one(pattern: str, line_end: str = "\n") -> list[str]:
    """All of them as one long document."""
    return ["".join(sources(pattern)).replace("\n", line_end)]


def prose() -> list[str]:
    """Paragraphs on a line each, of hundreds of letters."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\n|\n- ", text)]
    return ["\n\n".join(part for part in paragraphs if len(part) > 30)]


def ideographs() -> list[str]:
    """Text of which every letter is several tokens."""
    choose = random.Random(0)
    lengths = (choose.randrange(9, 90) for _ in range(800))
    return ["\n".join("".join(chr(choose.randrange(0x4E00, 0x9000)) for _ in range(length)) for length in lengths)]


@dataclass
class Desk:
    """A language server's documents and an engine without a model; every prompt is compared with the documents."""

    texts: list[str]
    settings: Settings
    folder: str = "file:///project"
    costs: list[PromptCost] = field(default_factory=list)
    records: list[tuple[str, int, str]] = field(default_factory=list)  # kind, recomputed tokens, cache outcome

    def __post_init__(self) -> None:
        self.core = CheckingCore(self)
        self.session = EditingSession(self.core, self.settings, "test", self.costs.append)
        self.documents = self.session.documents
        self.documents.use_folders([self.folder])
        self.opened = [
            self.documents.open(f"{self.folder}/{number}.py", "python", 1, text) for number, text in enumerate(self.texts)
        ]

    def copies(self) -> list[Document]:
        """The documents as their editor has them."""
        texts = enumerate(self.texts)
        return [Document.from_text(f"{self.folder}/{number}.py", "python", 1, text) for number, text in texts]

    async def play(self, keys: Iterator[Key]) -> None:
        at = ("", Position(0, 0))
        for key in keys:
            opened = self.documents[key.uri]
            if at != (key.uri, key.cursor_before):
                self.session.prefetch(opened, key.cursor_before)
                await opened.latest.join()
            for edit in key.edits:
                opened.apply(edit)
            self.costs.clear()
            await self.session.suggest(opened, Query(key.cursor))
            self.record(key)
            at = key.uri, key.cursor

    def record(self, key: Key) -> None:
        (cost,) = self.costs
        usage, inserted = cost.usage, sum(len(self.core.engine.tokenizer.encode(edit.text)) for edit in key.edits)
        outcome = cache_outcome(usage, inserted)
        self.records.append((key.kind, usage.recomputed_tokens, outcome))

    def hit_share(self, *but: str) -> float:
        """Of all keys but these kinds."""
        outcomes = [outcome for kind, _, outcome in self.records if kind not in but]
        return outcomes.count("hit") / len(outcomes)

    @property
    def recomputed(self) -> list[int]:
        return [tokens for _, tokens, _ in self.records]

    @property
    def mean(self) -> float:
        return sum(self.recomputed) / len(self.records)

    def check(self, request: CompletionRequest) -> None:
        """The prompt is what stands around the cursor, and before it pieces of other documents."""
        opened = self.documents[request.session.removeprefix("test/")]
        text = opened.document.slice(Position(0, 0), opened.cursor).replace("\r\n", "\n")
        behind = opened.document.slice(opened.cursor, opened.document.end).replace("\r\n", "\n")
        prompt = request.prompt
        assert text.endswith(prompt.prefix + prompt.increment)
        gap = behind[: behind.index(prompt.suffix)]
        assert re.fullmatch(r"[\s)\]}\"'`]*", gap), gap
        others = [each.document.text.replace("\r\n", "\n") for each in self.opened if each is not opened]
        assert all(any(_is_of(chunk.text, other) for other in others) for chunk in prompt.context)


def _is_of(text: str, other: str) -> bool:
    """Whether a snippet is a piece of a document, or the diff of one."""
    lines = text.splitlines(keepends=True)
    is_diff = all(line[0] in " -+" for line in lines)
    return text in other or (is_diff and "".join(line[1:] for line in lines if line[0] != "-") in other)


class CheckingCore(EngineCore):
    def __init__(self, desk: Desk) -> None:
        super().__init__(load_dry_engine(EngineOptions(TINY_MODEL, healing="off")))
        self._desk = desk

    async def complete(self, request: CompletionRequest) -> Completion:
        self._desk.check(request)
        return await super().complete(request)


# What changes the text behind the cursor, or much of it at once, costs what stands behind it: these are let off.
LET_OFF = ("several places", "delete forward", "delete lines", "paste")


@pytest.mark.parametrize(
    ("texts", "more", "other_files"),
    [
        pytest.param(in_one("lsp_server/*/*.py"), {}, False, id="typing, Python"),
        pytest.param(
            in_one("vscode-client/src/*.ts"),
            {Person.delete_lines: 2, Person.delete_forward: 1, Person.rename: 0.5},
            False,
            id="refactoring, TypeScript",
        ),
        pytest.param(in_one("nvim/lua/midfill/*.lua"), {Person.jump: 12}, False, id="jumping, Lua"),
        pytest.param(in_one("inference/backends/cpu/kernel/*.h", "\r\n"), {Person.paste: 1}, False, id="pasting, C++, CRLF"),
        pytest.param(in_one("inference/text/*.py"), {Person.undo: 4}, False, id="undo storms"),
        pytest.param(prose(), {Person.jump: 4}, False, id="long lines of prose"),
        pytest.param(ideographs(), {Person.jump: 4}, False, id="many tokens per letter"),
        pytest.param(sources("lsp_server/*.py")[:20], {}, True, id="many files, with context from the others"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
async def test_sessions_that_nobody_recorded(texts: list[str], more: Weights, other_files: bool, seed: int) -> None:
    desk = Desk(texts, Settings(other_files=other_files))
    await desk.play(session(desk.copies(), {**WRITING, **more}, KEYS, seed))
    assert len(desk.records) >= KEYS
    assert desk.hit_share() >= 0.96
    assert desk.hit_share(*LET_OFF) >= 0.985
    assert desk.mean <= 45
    assert percentile(desk.recomputed, 0.95) <= 8
    desk.core.engine.check_integrity()
