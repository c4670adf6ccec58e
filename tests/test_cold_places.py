"""A place where nothing is resident gets a suggestion at once, from a short prompt, while the whole one is computed."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from inference.backends.model import DryModel
from inference.checkpoints.checkpoint import find_checkpoint
from inference.engine.engine import Engine, EngineConfig
from inference.engine.interface import EngineInfo
from inference.engine.request import Request
from inference.engine.sessions import session_key
from inference.text.healing import Healer
from kv_store.interface import DryWorkspace
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier
from lsp_server.documents.documents import Edit, Position
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import OpenDocument
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from protocol.messages import SLACK_TOKENS, Completion, CompletionRequest
from protocol.settings import TINY_MODEL, Settings

LINES = 2_500
SOURCE = Path(__file__).parent / "data" / "fidelity" / "sources" / "inventory.py"
CODE = SOURCE.read_text(encoding="utf-8").splitlines(keepends=True) * 100  # the product's own would change with it
SHORT_TOKENS = 400
TYPED = "result = offset_of(value)"


def slow_engine(forward_s: float = 1.0, slots: int = 2) -> Engine:
    """An engine that computes nothing, each forward of which takes so long by its clock."""
    tokenizer = find_checkpoint(TINY_MODEL).tokenizer()
    model = DryModel(lambda: DryWorkspace(4), 8192, end_token=min(tokenizer.markers.end))
    store = PagedStore([Tier("device", 2**20, MemoryStorage())], 4)
    config = EngineConfig(slots=slots, kept=1)
    clock = itertools.count().__next__
    info = EngineInfo("slow", "cpu", 8192, 3.2)
    return Engine(info, model, tokenizer, store, config, Healer(tokenizer), clock=lambda: clock() * forward_s)


class SteppedCore:
    """A core in this process: one forward for each turn of the event loop, and a cancelled request ends."""

    ready = True
    chars_per_token = 3.2

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def complete(self, spec: CompletionRequest) -> Completion:
        request = Request(spec)
        self.engine.begin(request)
        try:
            while not request.has_ended:
                await asyncio.sleep(0)
                self.engine.step()
        except asyncio.CancelledError:
            request.cancelled = True
            self.engine.drop_unwanted()
            raise
        return request.completion()

    def forget(self, session: str) -> None:
        self.engine.forget(session_key(session).document)

    def release(self, session: str) -> None:
        self.engine.release(session_key(session))


class Writer:
    """A user who types in a large file that nothing has prepared."""

    def __init__(self, engine: Engine, lines: int = LINES) -> None:
        self.costs: list[PromptCost] = []
        settings = Settings(prepare_ahead="never", debounce_ms=0)
        self.session = EditingSession(SteppedCore(engine), settings, "me", self.costs.append, max_prefill_ms=1000)
        text = "".join(CODE[:lines])
        self.opened: OpenDocument = self.session.documents.open("file:///large.py", "python", 1, text)
        self.cursor = Position(lines // 2, 0)

    async def type(self, text: str) -> PromptCost:
        """The cost of the core's answer behind the text."""
        self.opened.suggestions = ()
        self.opened.apply(Edit(self.cursor, self.cursor, text))
        self.cursor = Position(self.cursor.line, self.cursor.column + len(text))
        known = len(self.costs)
        await self.session.suggest(self.opened, Query(self.cursor))
        return next(cost for cost in self.costs[known:] if not cost.is_prefetch)

    async def rest(self) -> None:
        while self.opened.latest.busy:
            await asyncio.sleep(0)


@pytest.fixture
def writer() -> Writer:
    return Writer(slow_engine())


async def test_the_first_answer_computes_little_and_the_switch_costs_no_key_its_cache_hit(writer: Writer) -> None:
    first = await writer.type(TYPED[0])
    assert first.usage.recomputed_tokens == first.usage.prompt_tokens <= SHORT_TOKENS
    await writer.rest()
    assert writer.costs[-1].is_prefetch
    assert writer.costs[-1].usage.recomputed_tokens > 5 * SHORT_TOKENS
    for key in TYPED[1:]:
        cost = await writer.type(key)
        assert cost.usage.prompt_tokens > 5 * SHORT_TOKENS
        assert cost.usage.recomputed_tokens <= 1 + SLACK_TOKENS


async def test_the_whole_prompt_becomes_resident_while_the_user_types_without_a_pause(writer: Writer) -> None:
    costs = [await writer.type(TYPED[0])]
    while costs[-1].usage.prompt_tokens <= SHORT_TOKENS + len(costs):
        for _ in range(3):  # the prefetch gets a forward or two between two keys
            await asyncio.sleep(0)
        costs.append(await writer.type("ab c"[len(costs) % 4]))
        assert len(costs) < 100
    assert len(costs) > 5
    assert all(cost.usage.recomputed_tokens <= 1 + SLACK_TOKENS for cost in costs[1:])


async def test_the_prompts_are_dropped_with_their_document(writer: Writer) -> None:
    engine = slow_engine()
    writer = Writer(engine)
    await writer.type(TYPED[0])
    await writer.rest()
    assert engine.documents() == {"file:///large.py"}
    engine.forget("file:///large.py")
    assert (engine.stats().tokens, engine.documents()) == (0, set())


@pytest.mark.parametrize(
    ("engine", "lines"),
    [
        pytest.param(slow_engine(forward_s=0.0), LINES, id="a fast machine"),
        pytest.param(slow_engine(slots=1), LINES, id="one workspace"),
        pytest.param(slow_engine(), 8, id="a small document"),
    ],
)
async def test_where_a_short_prompt_is_of_no_use_nothing_changes(engine: Engine, lines: int) -> None:
    other = Writer(engine, 300).opened.plan(Position(9, 0)).prompt
    engine.complete(CompletionRequest("me/other", other, max_tokens=0))  # measures the speed
    writer = Writer(engine, lines)
    await writer.type(TYPED[0])
    assert not writer.opened.lacks_prompt
