"""What accepting a suggestion costs, and taking that back: from cursor to tokens, on a real (tiny) model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from inference.engine.engine import Engine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from lsp_server.editing.documents import Edit, Position
from lsp_server.editing.spans import end_of
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import OpenDocument, OpenDocuments
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import Cost
from midfill.headless.engine_core import EngineCore
from protocol.settings import Settings
from tests.inference.tiny import write_checkpoint

TEXT = "import os\n\n\ndef size_of(path):\n    return os.stat(path).st_size\n\n\nx = \n\nprint(x)\n"
CURSOR = Position(7, 4)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("tiny"), max_position_embeddings=512)
    return load_engine(EngineOptions(model=str(checkpoint), context_tokens=512, threads=1))


class Session:
    def __init__(self, engine: Engine) -> None:
        settings = Settings(max_tokens=12, hold_back_percent=0)
        self.costs: list[Cost] = []
        self.suggester = EditingSession(EngineCore(engine), settings, "test", self.costs.append)
        self.opened: OpenDocument = OpenDocuments(settings).open("file:///a.py", "python", 1, TEXT)

    async def suggest(self, cursor: Position, *, invoked: bool = False) -> tuple[str, ...]:
        """The suggestions, computed: nothing that is at hand."""
        self.opened.offers = ()
        insertions = await self.suggester.suggest(self.opened, Query(cursor, invoked=invoked))
        return tuple(insertion.text for insertion in insertions)

    @property
    def recomputed(self) -> int:
        return self.costs[-1].usage.recomputed_tokens


@pytest.fixture
async def session(engine: Engine) -> AsyncIterator[Session]:
    session = Session(engine)
    yield session
    session.suggester.release("file:///a.py")


async def test_undoing_an_acceptance_is_hot(session: Session) -> None:
    (text,) = await session.suggest(CURSOR)
    end = end_of(CURSOR, text)
    for _ in range(2):
        session.opened.apply(Edit(CURSOR, CURSOR, text))
        await session.suggest(end)
        session.opened.apply(Edit(CURSOR, end, ""))
        assert await session.suggest(CURSOR) == (text,)
        assert session.recomputed <= 2
    session.opened.apply(Edit(CURSOR, CURSOR, text))
    await session.suggest(end)
    assert session.recomputed <= 2  # and so is redoing it


async def test_alternatives_cost_their_own_tokens_and_one_each(session: Session) -> None:
    (text,) = await session.suggest(CURSOR)
    assert len(await session.suggest(CURSOR, invoked=True)) > 1
    assert session.recomputed <= 4
    assert (await session.suggest(CURSOR, invoked=True))[0] == text
