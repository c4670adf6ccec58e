"""Memory stays within its budget and in proportion to resident tokens, with many documents and room for few."""

from __future__ import annotations

import random
from pathlib import Path

from inference.engine.engine import Engine
from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.prompts.anchors import WindowBudget
from lsp_server.prompts.planner import PromptPlanner
from protocol.messages import CompletionRequest
from tests.inference.tiny import write_checkpoint
from tests.kv_store.integrity import check_integrity

DOCUMENTS, ROOM_FOR = 50, 8
BUDGET = WindowBudget(prefix_tokens=400, suffix_tokens=200)
PROMPT_TOKENS = 600
SOURCES = sorted((Path(__file__).parents[1] / "lsp_server").rglob("*.py"))


def test_fifty_documents_with_a_budget_for_eight(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "tiny", max_position_embeddings=2048)
    bytes_per_token = load_dry_engine(EngineOptions(str(checkpoint)))._model.new_workspace().bytes_per_token
    budget = ROOM_FOR * PROMPT_TOKENS * bytes_per_token
    engine = load_dry_engine(EngineOptions(str(checkpoint), store_budget_bytes=budget))
    documents = [
        Document.from_text(f"file:///{number}.py", "python", 1, f"# {number}\n" + SOURCES[number % 8].read_text())
        for number in range(DOCUMENTS)
    ]
    planners = [PromptPlanner(document, BUDGET) for document in documents]
    choose = random.Random(0)
    for _ in range(300):
        number = choose.randrange(DOCUMENTS)
        document, planner = documents[number], planners[number]
        cursor = Position(choose.randrange(len(document.lines)), 0)
        for column in range(3):
            cursor = Position(cursor.line, column)
            planner.edited(document.apply(Edit(cursor, cursor, "x")))
            prompt = planner.plan(Position(cursor.line, column + 1)).prompt
            engine.complete(CompletionRequest(document.uri, prompt, max_tokens=8))
        check_memory(engine, budget, bytes_per_token)
    assert engine.stats().evicted_tokens > 0


def check_memory(engine: Engine, budget: int, bytes_per_token: int) -> None:
    stats = engine.stats()
    assert stats.used_bytes <= budget
    assert stats.tokens * bytes_per_token <= stats.used_bytes <= 1.1 * stats.tokens * bytes_per_token
    check_integrity(engine)
