"""What accepting a suggestion costs, and taking that back: from cursor to tokens, on a real (tiny) model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from inference.engine.engine import Engine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from lsp_server.documents.documents import Edit, Position, end_of
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import OpenDocument
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.engine_core import EngineCore
from protocol.settings import Settings
from tests.inference.tiny import write_checkpoint

TEXT = "import os\n\n\ndef size_of(path):\n    return os.stat(path).st_size\n\n\nx = \n\nprint(x)\n"
CURSOR = Position(7, 4)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("tiny"), max_position_embeddings=512)
    return load_engine(EngineOptions(model=str(checkpoint), context_tokens=512, threads=1))


class Editor:
    def __init__(self, engine: Engine) -> None:
        self.costs: list[PromptCost] = []
        settings = Settings(max_tokens=32, hold_back_percent=0, shorten_unlikely=False)
        self.session = EditingSession(EngineCore(engine), settings, "test", self.costs.append)
        self.opened: OpenDocument = self.session.open("file:///a.py", "python", 1, TEXT)

    async def suggest(self, cursor: Position, *, invoked: bool = False) -> tuple[str, ...]:
        """The suggestions, computed: nothing that is at hand."""
        self.opened.suggestions = ()
        insertions = await self.session.suggest(self.opened, Query(cursor, invoked=invoked))
        return tuple(insertion.text for insertion in insertions)

    @property
    def recomputed(self) -> int:
        return self.costs[-1].usage.recomputed_tokens


@pytest.fixture
async def editor(engine: Engine) -> AsyncIterator[Editor]:
    editor = Editor(engine)
    yield editor
    editor.session.close("file:///a.py")


async def test_undoing_an_acceptance_is_a_cache_hit(editor: Editor) -> None:
    (text,) = await editor.suggest(CURSOR)
    end = end_of(CURSOR, text)
    for _ in range(2):
        editor.opened.apply(Edit(CURSOR, CURSOR, text))
        await editor.suggest(end)
        editor.opened.apply(Edit(CURSOR, end, ""))
        assert await editor.suggest(CURSOR) == (text,)
        assert editor.recomputed <= 2
    editor.opened.apply(Edit(CURSOR, CURSOR, text))
    await editor.suggest(end)
    assert editor.recomputed <= 2  # and so is redoing it


async def test_alternatives_cost_their_own_tokens_and_one_each(editor: Editor) -> None:
    (text,) = await editor.suggest(CURSOR)
    assert len(await editor.suggest(CURSOR, invoked=True)) > 1
    assert editor.recomputed <= 4
    assert (await editor.suggest(CURSOR, invoked=True))[0] == text
