"""Models with recurrent layers: reuse never changes a suggestion, and snapshots keep keystrokes cache hits."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from statistics import quantiles

import pytest
from msgspec import structs

from inference.backends.cpu.library import unavailable_reason
from inference.engine.engine import Engine
from inference.engine.sessions import session_key
from inference.loading.engine import load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from kv_store.disk_folders import INDEX_NAME
from kv_store.page_snapshots import SAVED_APART
from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.prompts.anchors import WindowBudget
from lsp_server.prompts.planner import PromptPlanner
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.inference.generic_models import ON_KERNEL, RECURRENT, write_model
from tests.inference.requests import complete_cancelled
from tests.kv_store.integrity import check_integrity

EDITS = int(os.environ.get("MIDFILL_EDITS", "0"))
"""Of every family; 0: few."""
FEW = dict.fromkeys(RECURRENT, 2) | {"Lfm2": 16, "NemotronH": 12, "Qwen3Next": 4, "Jamba": 1}
BUDGET = WindowBudget(prefix_tokens=60, suffix_tokens=30, increment_tokens=30, chars_per_token=2.5)
BLOCK = "import os\n\n\ndef size(path):\n    return os.stat(path).st_size\n\n\nclass Box:\n    lid = 1\n"
DOCUMENT = "file:///a.py"
WIDE = WindowBudget(prefix_tokens=200, suffix_tokens=60, increment_tokens=60, chars_per_token=2.5)
TYPED = ("def ", "value", "_id", "(", "):", "\n    ", "return ", "x", " = ", "1", "\n", "os.", "'é'", "if ")
TOLERANCE = 1e-4  # of mean log-probabilities


class Typist:
    """Types in one document, deletes, accepts suggestions, and now and then goes elsewhere."""

    def __init__(self, seed: int, blocks: int, budget: WindowBudget) -> None:
        self._random = random.Random(seed)
        self._document = Document.from_text(DOCUMENT, "python", 1, BLOCK * blocks)
        self._planner = PromptPlanner(self._document, budget)
        self._cursor = Position(len(self._document.lines) // 2, 0)

    def next(self, suggested: str = "", *, types_only: bool = False) -> tuple[CompletionRequest, bool]:
        """The request after another edit, perhaps of what was suggested, and whether its anchor is new."""
        self._edit(1.0 if types_only else self._random.random(), suggested)
        plan = self._planner.plan(self._cursor)
        return CompletionRequest(DOCUMENT, plan.prompt, 6, StopRule(indent=0)), plan.relaid

    def _edit(self, dice: float, suggested: str) -> None:
        if dice < 0.06:
            line = self._random.randrange(len(self._document.lines))
            self._cursor = Position(line, len(self._document.lines[line].rstrip("\n")))
        elif dice < 0.2:
            for _ in range(self._random.randint(1, 4)):
                line, column = self._cursor
                if column:
                    self._replace(Position(line, column - 1), self._cursor, "")
        elif dice < 0.3 and suggested and "\r" not in suggested:  # which may make one line end of two
            self._replace(self._cursor, self._cursor, suggested)
        else:
            self._replace(self._cursor, self._cursor, self._random.choice(TYPED))

    def _replace(self, start: Position, end: Position, text: str) -> None:
        self._planner.edited(self._document.apply(Edit(start, end, text)))
        lines = text.split("\n")
        self._cursor = Position(start.line + len(lines) - 1, len(lines[-1]) + (start.column if len(lines) == 1 else 0))


KERNELS = [f"{kind} on the kernel" for kind in ON_KERNEL]


def write(folder: Path, kind: str) -> Path:
    """A model that transformers' modules run, or, if its kind says so, the CPU kernel."""
    family = kind.removesuffix(" on the kernel")
    if kind in KERNELS and unavailable_reason() is not None:
        pytest.skip(str(unavailable_reason()))
    return write_model(folder, family, recurrent=True, on_kernel=kind in KERNELS)


def load(folder: Path, **options: object) -> Engine:
    given = EngineOptions(str(folder), dtype="float32", device="cpu", prefill_chunk=128, threads=1, **options)  # type: ignore[arg-type]
    return load_engine(given)


@pytest.mark.timeout(300 + 10 * EDITS)
@pytest.mark.parametrize("kind", [*RECURRENT, *KERNELS])
def test_warm_is_as_cold(kind: str, tmp_path: Path) -> None:
    folder, edits = write(tmp_path, kind), EDITS or FEW.get(kind, 40)
    cold, engines = load(folder, speculation=False), [load(folder)]
    if edits >= 12:
        engines.append(load(folder, speculation=False))
    typist, suggested = Typist(len(kind), 8, BUDGET), ""
    for edit in range(edits):
        request, _ = typist.next(suggested)
        expected = cold.complete(structs.replace(request, reuse=False))
        for engine in engines:
            answer = engine.complete(request)
            assert answer.text == expected.text, edit
            assert (answer.mean_logprob or 0) == pytest.approx(expected.mean_logprob or 0, abs=TOLERANCE)
            check_integrity(engine)
        suggested = answer.text
        if edit % 4 == 3:  # what a cancelled request has computed may be reused
            request, _ = typist.next()
            for engine in engines:
                complete_cancelled(engine, request, edit % 3)


@pytest.mark.parametrize("kind", ["Lfm2", "NemotronH", *KERNELS])
def test_other_texts_are_as_cold(kind: str, tmp_path: Path) -> None:
    """Those that leave the suggestion at a token, and the one that fits best before the suffix."""
    engine, typist = load(write(tmp_path, kind)), Typist(1, 8, BUDGET)
    for others in ({"alternatives": 2}, {"best_of": 3}, {"alternatives": 1}):
        request = structs.replace(typist.next()[0], **others)
        expected = engine.complete(structs.replace(request, reuse=False))
        answer = engine.complete(request)
        assert (answer.text, answer.alternatives) == (expected.text, expected.alternatives)
        again = engine.complete(structs.replace(request, alternatives=0, best_of=1))
        assert again.usage.recomputed_tokens <= 2 + len(request.prompt.increment)


@pytest.mark.parametrize("kind", ["Lfm2", "NemotronH", *KERNELS])
def test_the_store_brings_a_document_back_and_the_text_is_as_cold(kind: str, tmp_path: Path) -> None:
    engine = load(write(tmp_path, kind), slots=1)
    first = CompletionRequest("a.py", Prompt(BLOCK, "\n", "x = "), 6, StopRule(indent=0))
    other = CompletionRequest("b.py", Prompt("other\n" + BLOCK, "\n", "y = "), 6, StopRule(indent=0))
    expected = engine.complete(structs.replace(first, reuse=False))
    engine.complete(first)
    for _ in range(2):
        engine.complete(other)
        again = engine.complete(first)
        assert (again.text, again.usage.recomputed_tokens <= 3) == (expected.text, True)
        check_integrity(engine)
    snapshots = engine.stats().tiers[-1]
    assert (snapshots.name, snapshots.pages > 0) == ("snapshots", True)
    engine.forget("a.py")
    assert engine.stats().tiers[-1].pages < snapshots.pages
    assert engine.complete(first).usage.recomputed_tokens == again.usage.prompt_tokens


@pytest.mark.parametrize("kind", ["Lfm2", "NemotronH", "Qwen3Next", *KERNELS])
def test_after_restarts_a_prompt_goes_on_where_it_was_saved_and_the_text_is_as_cold(kind: str, tmp_path: Path) -> None:
    """Where the last saved states are damaged, it goes on at the one before, if there is one."""
    folder = write(tmp_path / "model", kind)
    request = CompletionRequest("me/a.py", Prompt(BLOCK * 2, "\n" + BLOCK, "x = 1\n" * 9 + "y = "), 6, StopRule(indent=0))
    engine = load(folder, cache_folder=tmp_path / "kv")
    expected = engine.complete(structs.replace(request, reuse=False))
    engine.complete(structs.replace(request, max_tokens=0))
    engine.close()
    before = SAVED_APART
    for damaged in (0, 1, 100):
        again = shutil.copytree(tmp_path / "kv", tmp_path / str(damaged))
        for path in saved_states(again)[:damaged]:
            path.write_bytes(bytes(path.stat().st_size))
        engine = load(folder, cache_folder=again)
        answer = engine.complete(request)
        assert answer.text == expected.text
        assert (answer.mean_logprob or 0) == pytest.approx(expected.mean_logprob or 0, abs=TOLERANCE)
        prompt, recomputed = answer.usage.prompt_tokens, answer.usage.recomputed_tokens
        assert recomputed == prompt if damaged == 100 else recomputed <= before
        assert len(engine.stats().refused) >= bool(damaged)
        check_integrity(engine)
        engine.close()
        before = prompt - 1


def saved_states(folder: Path) -> list[Path]:
    """The files of snapshots, the latest first."""
    (index,) = folder.rglob(INDEX_NAME)
    with closing(sqlite3.connect(index)) as database:
        numbers = database.execute("SELECT number FROM snapshots ORDER BY number DESC").fetchall()
    return [index.parent / f"{number:08x}.safetensors" for (number,) in numbers]


def test_after_a_restart_without_snapshots_the_short_prompt_answers_first(tmp_path: Path) -> None:
    """Pages alone are of no use: the whole prompt would be computed before the answer."""
    folder = write_model(tmp_path / "model", "Lfm2", recurrent=True)
    request = CompletionRequest("me/a.py", Prompt(BLOCK * 12, "\n", "x = "), 6, StopRule(indent=0), max_prefill_ms=1)
    for _ in range(2):
        engine = load(folder, cache_folder=tmp_path / "kv", slots=2)
        assert engine.complete(request).is_short
        engine.complete(structs.replace(request, max_tokens=0))
        assert not engine.complete(request).is_short
        engine.close()
        for path in saved_states(tmp_path):
            path.unlink()


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Engine]:
    """Engines that count, as for a model with recurrent layers and for one without."""
    kinds = {"Lfm2": True, "Falcon": False}
    folders = [write_model(tmp_path_factory.mktemp(kind), kind, recurrent=kinds[kind]) for kind in kinds]
    recurrent, attention = (load_dry_engine(EngineOptions(str(folder), context_tokens=512)) for folder in folders)
    return recurrent, attention


def test_keys_hit_as_often_as_with_attention_alone(dry: tuple[Engine, Engine]) -> None:
    typist, more = Typist(3, 20, WIDE), []
    for _ in range(300):
        request, relaid = typist.next()
        recurrent, attention = (engine.complete(request).usage.recomputed_tokens for engine in dry)
        more += [] if relaid else [recurrent - attention]
    shares = quantiles(more, n=20)
    assert (shares[9] == 0, shares[18] <= 6) == (True, True), (shares[9], shares[18])


def test_an_anchor_laid_while_typing_on_costs_as_with_attention_alone(dry: tuple[Engine, Engine]) -> None:
    typist, total = Typist(3, 20, WIDE), [0, 0]
    for engine in dry:
        engine.forget(session_key(DOCUMENT).document)
    for _ in range(300):
        request, relaid = typist.next(types_only=True)
        costs = [engine.complete(request).usage.recomputed_tokens for engine in dry]
        total = [total[0] + costs[0], total[1] + costs[1]] if relaid else total
    assert 1 <= total[0] / total[1] <= 1.05, total
