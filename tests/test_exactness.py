"""Reuse never changes a suggestion: random editing of several documents, warm against cold, on a real (tiny) model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec import structs

from inference.backends.model import Chunk
from inference.engine.engine import Engine
from inference.engine.sessions import session_key
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import TokenIds
from inference.text.tokenization import TextTokenizer
from lsp_server.documents.documents import Document, Edit, Position, line_length
from lsp_server.prompts.anchors import WindowBudget
from lsp_server.prompts.planner import Plan, PromptPlanner
from protocol.messages import Completion, CompletionRequest, StopRule
from tests.inference.requests import complete_cancelled
from tests.inference.slots import last_slot
from tests.inference.tiny import write_checkpoint
from tests.kv_store.integrity import check_integrity

CHUNK = 16
MAX_TOKENS = 4
EPSILON = 1e-4  # of float32 logits of this model, whose logits are of the order of 10
BUDGET = WindowBudget(prefix_tokens=60, suffix_tokens=30, increment_tokens=30, chars_per_token=2.5)
TEXTS = ("", "import os\n\n\ndef f(a, b):\n    return a + b\n" * 6, "\tx = [1, 2]\r\n" * 30, "😀 = 'e\u0301'\n" * 20)
PIECES = st.sampled_from(
    [
        *("a", "value", "_id", "1", " ", ".", " = ", "\n", "\n    ", "\t"),
        *("(", ")", "():\n", "{", "}", '"', "é", "😀", "e\u0301"),
    ]
)
PLACES = st.floats(0, 1)


class Afresh:
    """Tokenizes every fragment in one piece, and remembers nothing."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.format, self.markers = tokenizer.format, tokenizer.markers
        self.encode = tokenizer._encode_block


class Editing(RuleBasedStateMachine):
    """People edit documents that share one engine, whose every answer is compared with a cold one."""

    options: EngineOptions
    warm: Engine
    cold: Engine

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[Document] = []
        self.planners: list[PromptPlanner] = []
        self.undo: list[list[Edit]] = []
        self.cursors: list[Position] = []
        self.current = 0

    @initialize(texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3))
    def open_documents(self, texts: list[str]) -> None:
        for number, text in enumerate(texts):
            document = Document.from_text(f"file:///{number}.py", "python", 1, text)
            self.documents.append(document)
            self.planners.append(PromptPlanner(document, BUDGET))
            self.undo.append([])
            self.cursors.append(document.end)
            self.warm.forget(session_key(document.uri).document)

    @property
    def document(self) -> Document:
        return self.documents[self.current]

    def place(self, share: float) -> Position:
        lines = self.document.lines
        line = min(int(share * len(lines)), len(lines) - 1)
        return Position(line, int(share * 1000) % (line_length(lines[line]) + 1))

    def edit(self, start: Position, end: Position, text: str) -> None:
        """Edit, remember how to undo it, and leave the cursor behind the inserted text."""
        if self.document.lines[0].endswith("\r\n"):
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        removed = self.document.slice(start, end)
        self.planners[self.current].edited(self.document.apply(Edit(start, end, text)))
        lines = Document.from_text("", "", 0, text).lines
        stop = Position(start.line + len(lines) - 1, len(lines[-1]) + (start.column if len(lines) == 1 else 0))
        self.undo[self.current].append(Edit(start, stop, removed))
        self.cursors[self.current] = stop

    @rule(pieces=st.lists(PIECES, min_size=1, max_size=4))
    def type(self, pieces: list[str]) -> None:
        for piece in pieces:
            self.edit(self.cursors[self.current], self.cursors[self.current], piece)
            self.ask()

    @rule(count=st.integers(1, 5))
    def backspace(self, count: int) -> None:
        for _ in range(count):
            line, column = self.cursors[self.current]
            if (line, column) == (0, 0):
                return
            lines = self.document.lines
            start = Position(line, column - 1) if column else Position(line - 1, line_length(lines[line - 1]))
            self.edit(start, Position(line, column), "")
        self.ask()

    @rule(share=PLACES, prefetch=st.booleans())
    def jump(self, share: float, prefetch: bool) -> None:
        self.cursors[self.current] = self.place(share)
        self.ask(max_tokens=0 if prefetch else MAX_TOKENS)

    @rule(start=PLACES, end=PLACES, piece=PIECES)
    def replace_range(self, start: float, end: float, piece: str) -> None:
        first, last = sorted((self.place(start), self.place(min(end, start + 0.1))))
        self.edit(first, last, piece)
        self.ask()

    @rule(shares=st.lists(PLACES, min_size=2, max_size=3), piece=PIECES)
    def edit_several_places(self, shares: list[float], piece: str) -> None:
        for place in sorted({self.place(share) for share in shares}, reverse=True):
            self.edit(place, place, piece)
        self.ask()

    @precondition(lambda self: self.undo and self.undo[self.current])
    @rule(count=st.integers(1, 3))
    def undo_edits(self, count: int) -> None:
        for _ in range(min(count, len(self.undo[self.current]))):
            start, end, text = (edit := self.undo[self.current].pop()).start, edit.end, edit.text
            self.edit(start, end, text)
            self.undo[self.current].pop()
        self.ask()

    @rule(number=st.integers(0, 2))
    def switch_document(self, number: int) -> None:
        self.current = number % len(self.documents)
        self.ask()

    @rule(forwards=st.integers(0, 6), share=PLACES)
    def cancel_a_request(self, forwards: int, share: float) -> None:
        """A request elsewhere is cancelled after some forwards; what it computed may be reused."""
        complete_cancelled(self.warm, self.request(self.plan(self.place(share))), forwards)
        self.ask()

    @rule()
    def restart(self) -> None:
        """What was resident comes back from disk."""
        self.warm.close()
        type(self).warm = load_engine(self.options)
        self.ask()

    @precondition(lambda self: len(self.documents) > 1)
    @rule()
    def forget_a_document(self) -> None:
        self.warm.forget(session_key(self.documents[-1].uri).document)
        self.ask()

    def plan(self, cursor: Position) -> Plan:
        plan = self.planners[self.current].plan(cursor)
        text = self.document.text.replace("\r\n", "\n")
        offset = len(self.document.slice(Position(0, 0), cursor).replace("\r\n", "\n"))
        assert text[:offset].endswith(plan.prompt.prefix + plan.prompt.increment)
        assert text[offset:].startswith(plan.gap.replace("\r\n", "\n") + plan.prompt.suffix)
        return plan

    def request(self, plan: Plan, max_tokens: int = MAX_TOKENS) -> CompletionRequest:
        return CompletionRequest(self.document.uri, plan.prompt, max_tokens, StopRule(indent=0))

    def ask(self, max_tokens: int = MAX_TOKENS) -> None:
        request = self.request(self.plan(self.cursors[self.current]), max_tokens)
        context_tokens = self.warm.info.context_tokens
        token_ids = tokenize_prompt(request.prompt, Afresh(self.cold.tokenizer), context_tokens, max_tokens).token_ids
        warm = self.warm.complete(request)
        cold = self.cold.complete(structs.replace(request, reuse=False))
        assert warm.text == cold.text
        assert warm.finish_reason == cold.finish_reason
        assert warm.mean_logprob == pytest.approx(cold.mean_logprob, abs=EPSILON)
        check_cost(warm, len(token_ids), at_least=min(1, max_tokens))
        assert resident_ids(self.warm)[: len(token_ids)] == token_ids
        assert torch.allclose(last_logits(self.warm, token_ids), last_logits(self.cold, token_ids), atol=EPSILON)
        check_integrity(self.warm)


def check_cost(completion: Completion, prompt_tokens: int, at_least: int) -> None:
    usage = completion.usage
    assert usage.prompt_tokens == prompt_tokens
    assert at_least <= usage.recomputed_tokens <= prompt_tokens
    prefill = -(-usage.recomputed_tokens // CHUNK)
    assert usage.forwards + usage.accepted_tokens in (
        prefill + usage.generated_tokens,
        prefill + max(0, usage.generated_tokens - 1),
    )


def resident_ids(engine: Engine) -> TokenIds:
    return last_slot(engine).token_ids


def last_logits(engine: Engine, token_ids: TokenIds) -> torch.Tensor:
    """Logits after the prompt, from the KV that the engine has resident; writes the same KV again."""
    model = engine._model
    chunk = Chunk(token_ids[-1:], len(token_ids) - 1, last_slot(engine).workspace)
    return model.logits(model.hidden([chunk]))  # type: ignore[attr-defined]


def test_reuse_never_changes_a_suggestion(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = write_checkpoint(tmp_path_factory.mktemp("tiny"), tie_word_embeddings=True)
    # Room for a few prompts in memory and on disk, so that they move down, back up and out all the time.
    room = 2 * 120 * 400
    options = EngineOptions(str(folder), dtype="float32", store_budget_bytes=room, prefill_chunk=CHUNK, threads=1)
    kept = replace(options, cache_folder=tmp_path_factory.mktemp("kv"), cache_budget_bytes=2 * room)
    Editing.options, Editing.warm, Editing.cold = kept, load_engine(kept), load_engine(options)
    state_machine = Editing.TestCase
    state_machine.settings = settings(max_examples=settings.default.max_examples // 10, stateful_step_count=25, deadline=None)
    state_machine().runTest()
