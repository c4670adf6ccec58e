"""What the first keystroke recomputes after a restart: of the core alone, and of the editor with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from lsp_server.documents.documents import Edit, Position
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import OpenDocument
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.engine_core import EngineCore
from protocol.messages import Snippet
from protocol.settings import Settings
from tests.inference.tiny import write_checkpoint

SOURCE = Path(__file__).parents[1] / "lsp_server"
DOCUMENT = "file:///project/documents.py"
SLACK = 2


class Editor:
    """A client of the core: documents.py is being typed in, and others may be open beside it."""

    def __init__(self, core: EngineCore, *names: str, other_files: bool) -> None:
        settings = Settings(prefix_tokens=400, suffix_tokens=200, max_tokens=1, other_files=other_files)
        self.costs: list[PromptCost] = []
        self.session = EditingSession(core, settings, "test", self.costs.append)
        self.session.documents.use_folders(["file:///project"])
        self.cursor = Position(9, 0)
        for name in names:
            text = (SOURCE / "documents" / name).read_text()
            opened = self.session.documents.open(f"file:///project/{name}", "python", 1, text)
            opened.look_at(opened.cursor)

    @property
    def opened(self) -> OpenDocument:
        return self.session.documents[DOCUMENT]

    async def keystroke(self) -> PromptCost:
        """What it costs to type a letter below the first lines of documents.py."""
        opened = self.opened
        opened.apply(Edit(self.cursor, self.cursor, "x"))
        self.cursor = Position(9, self.cursor.column + 1)
        opened.suggestions = ()
        await opened.gather(self.cursor, self.session.settings)
        await self.session.suggest(opened, Query(self.cursor))
        return self.costs[-1]

    @property
    def context(self) -> tuple[Snippet, ...]:
        """What stood before the last prompt's prefix."""
        return self.opened.last_exchange[0].prompt.context


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    checkpoint = write_checkpoint(tmp_path / "tiny", max_position_embeddings=2048)
    return EngineOptions(str(checkpoint), context_tokens=2048, threads=1, cache_folder=tmp_path / "kv")


@pytest.fixture
def core(options: EngineOptions) -> EngineCore:
    return EngineCore(load_engine(options))


def restart(core: EngineCore, options: EngineOptions) -> None:
    core.engine.close()
    core.engine = load_engine(options)


@pytest.mark.parametrize("other_files", [False, True])
async def test_a_restart_of_the_core_alone_leaves_every_prompt_resident(
    core: EngineCore, options: EngineOptions, other_files: bool
) -> None:
    editor = Editor(core, "positions.py", "documents.py", other_files=other_files)
    cold = await editor.keystroke()
    assert cold.usage.recomputed_tokens == cold.usage.prompt_tokens
    restart(core, options)
    again = await editor.keystroke()
    assert again.usage.recomputed_tokens <= SLACK
    assert bool(editor.context) is other_files


@pytest.mark.parametrize(
    ("other_files", "reopened", "hits"),
    [
        (False, ("documents.py",), True),
        (True, ("positions.py", "documents.py"), True),  # as they were before
        (True, ("documents.py",), False),  # what stood before the prefix is not known any more
    ],
)
async def test_a_restart_of_the_editor_too(
    core: EngineCore, options: EngineOptions, other_files: bool, reopened: tuple[str, ...], hits: bool
) -> None:
    await Editor(core, "positions.py", "documents.py", other_files=other_files).keystroke()
    restart(core, options)
    first = await Editor(core, *reopened, other_files=other_files).keystroke()
    assert first.usage.recomputed_tokens <= SLACK if hits else first.usage.recomputed_tokens == first.usage.prompt_tokens
