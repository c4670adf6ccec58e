"""What the first keystroke recomputes after a restart: of the core alone, and of the editor with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from lsp_server.editing.documents import Edit, Position
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import OpenDocument, OpenDocuments
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import Cost
from midfill.headless.engine_core import EngineCore
from protocol.messages import ContextChunk
from protocol.settings import Settings
from tests.inference.tiny import write_checkpoint

SOURCE = Path(__file__).parents[1] / "lsp_server"
DOCUMENT = "file:///project/documents.py"
HOT = 2


class Editor:
    """A language server's documents: documents.py is being typed in, and others may be open beside it."""

    def __init__(self, *, other_files: bool) -> None:
        self.settings = Settings(prefix_tokens=400, suffix_tokens=200, max_tokens=1, other_files=other_files)
        self.documents = OpenDocuments(self.settings)
        self.documents.use_folders(["file:///project"])
        self.costs: list[Cost] = []
        self.cursor = Position(9, 0)

    def open(self, name: str) -> OpenDocument:
        opened = self.documents.open(f"file:///project/{name}", "python", 1, (SOURCE / "editing" / name).read_text())
        opened.look_at(opened.cursor)
        return opened

    async def keystroke(self, core: EngineCore) -> Cost:
        """What it costs to type a letter below the first lines of documents.py."""
        opened = self.documents[DOCUMENT]
        opened.apply(Edit(self.cursor, self.cursor, "x"))
        self.cursor = Position(9, self.cursor.column + 1)
        opened.offers = ()
        await EditingSession(core, self.settings, "test", self.costs.append).suggest(opened, Query(self.cursor))
        return self.costs[-1]

    @property
    def context(self) -> tuple[ContextChunk, ...]:
        """What stood before the last prompt's prefix."""
        exchange = self.documents[DOCUMENT].last_exchange
        assert exchange is not None
        return exchange[0].prompt.context


@pytest.fixture
def restart(tmp_path: Path) -> Callable[[EngineCore | None], EngineCore]:
    checkpoint = write_checkpoint(tmp_path / "tiny", max_position_embeddings=2048)
    options = EngineOptions(str(checkpoint), context_tokens=2048, threads=1, cache_folder=tmp_path / "kv")

    def new_core(core: EngineCore | None) -> EngineCore:
        if core is not None:
            core.engine.close()
        return EngineCore(load_engine(options))

    return new_core


Restart = Callable[[EngineCore | None], EngineCore]


def edited(*names: str, other_files: bool) -> Editor:
    editor = Editor(other_files=other_files)
    for name in names:
        editor.open(name)
    return editor


@pytest.mark.parametrize("other_files", [False, True])
async def test_a_restart_of_the_core_alone_leaves_everything_hot(restart: Restart, other_files: bool) -> None:
    editor = edited("positions.py", "documents.py", other_files=other_files)
    core = restart(None)
    cold = await editor.keystroke(core)
    assert cold.usage.recomputed_tokens == cold.usage.prompt_tokens
    again = await editor.keystroke(restart(core))
    assert again.usage.recomputed_tokens <= HOT
    assert bool(editor.context) is other_files


@pytest.mark.parametrize(
    ("other_files", "reopened", "hot"),
    [
        (False, ("documents.py",), True),
        (True, ("positions.py", "documents.py"), True),  # as they were before
        (True, ("documents.py",), False),  # what stood before the prefix is not known any more
    ],
)
async def test_a_restart_of_the_editor_too(
    restart: Restart, other_files: bool, reopened: tuple[str, ...], hot: bool
) -> None:
    core = restart(None)
    await edited("positions.py", "documents.py", other_files=other_files).keystroke(core)
    first = await edited(*reopened, other_files=other_files).keystroke(restart(core))
    assert first.usage.recomputed_tokens <= HOT if hot else first.usage.recomputed_tokens == first.usage.prompt_tokens
