"""Gathering: what sources propose reaches the pool, excluded files never do, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from lsp_server.context.index.database import IndexWriter, index_file
from lsp_server.context.index.scan import NO_RULES, scan
from lsp_server.context.proposals import PromptPlace, TextProposal
from lsp_server.documents.documents import Document, Position
from lsp_server.suggesting.open_documents import EditorWorkspace
from protocol.settings import Settings

ALPHA = "alpha = beta(gamma, delta)\n" * 20
LIB = "def load(path: str) -> int:\n    return 1\n" + "".join(f"other_{n} = {n}\n" for n in range(14))
SETTINGS = Settings()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "lib.py").write_text(LIB)
    (folder / "near.py").write_text(ALPHA)
    (folder / "secret.py").write_text("token = 'hidden'\n" + ALPHA)
    (folder / ".gitignore").write_text("secret.py\n")
    index(folder)
    return folder


def index(folder: Path) -> None:
    """Write the index, as if nothing had been ignored then."""
    with closing(IndexWriter(index_file(folder))) as writer:
        scan(folder, writer, NO_RULES)


def opened(folder: Path, text: str = "from lib import load\nalpha = beta(gamma)\n") -> Document:
    return Document.from_text((folder / "a.py").as_uri(), "python", 1, text)


async def snippets(workspace: EditorWorkspace, document: Document, settings: Settings = SETTINGS) -> list[str]:
    cursor = Position(len(document.lines) - 1, 0)
    await workspace.gather(document, cursor, settings)
    planner = workspace.planner(document, settings)
    return [snippet.path for snippet in planner.plan(cursor).prompt.context]


async def test_definitions_and_neighbours_reach_the_prompt(folder: Path) -> None:
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    assert await snippets(workspace, opened(folder)) == ["lib.py", "near.py"]


@pytest.mark.parametrize(
    ("settings", "paths"),
    [
        (Settings(context_sources=("definitions",)), ["lib.py"]),
        (Settings(context_sources=("similar",)), ["near.py"]),
        (Settings(context_sources=()), []),
        (Settings(other_files=False), []),
        (Settings(other_files_tokens=0), []),
    ],
)
async def test_each_source_can_be_off(folder: Path, settings: Settings, paths: list[str]) -> None:
    assert await snippets(EditorWorkspace.of_folders([folder.as_uri()]), opened(folder), settings) == paths


async def test_what_becomes_excluded_leaves_though_the_index_has_it(folder: Path) -> None:
    now = [0.0]
    workspace = EditorWorkspace.of_folders([folder.as_uri()], lambda: now[0])
    document = opened(folder, "from secret import token\nfrom lib import load\ntoken + load(\n")
    assert await snippets(workspace, document) == ["lib.py"]
    (folder / ".gitignore").write_text("secret.py\nlib.py\n")
    now[0] = 10.0
    assert "lib.py" not in await snippets(workspace, document)


async def test_a_definition_that_its_file_has_no_more_leaves(folder: Path) -> None:
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    document = opened(folder, "from lib import load\nload(\n")
    assert await snippets(workspace, document) == ["lib.py"]
    (folder / "lib.py").write_text("# one more line\n" + LIB)
    assert await snippets(workspace, document) == ["lib.py"]
    (folder / "lib.py").write_text(LIB.replace("load", "save"))
    index(folder)
    assert await snippets(workspace, document) == []


class Slow:
    """A source that takes until it is told."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def propose(self, place: PromptPlace) -> Sequence[TextProposal]:
        self.begun.set()
        assert self.go_on.wait(60)
        return ()


async def test_a_slow_source_blocks_nothing_and_outlives_who_waited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr("lsp_server.context.gathering.SimilarChunks", lambda: slow)
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    document = opened(folder)
    waiting = asyncio.create_task(workspace.gather(document, Position(1, 0), SETTINGS))
    await asyncio.to_thread(slow.begun.wait, 60)
    planner = workspace.planner(document, SETTINGS)
    assert planner.plan(Position(1, 0)).prompt.context == ()  # it takes what is ready
    waiting.cancel()
    slow.go_on.set()
    await workspace.gather(document, Position(1, 0), SETTINGS)
    assert {each.rpartition("/")[2] for each in workspace.pool.uris_for(document.uri)} == {"lib.py"}


async def test_what_is_gathered_for_a_document_that_closed_meanwhile_is_dropped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    monkeypatch.setattr("lsp_server.context.gathering.SimilarChunks", lambda: slow)
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    document = opened(folder)
    calls = [asyncio.create_task(workspace.gather(document, Position(1, 0), SETTINGS)) for _ in range(2)]
    await asyncio.to_thread(slow.begun.wait, 60)
    workspace.pool.closed(document.uri)
    slow.go_on.set()
    await asyncio.gather(*calls)
    assert not workspace.pool.uris_for(document.uri)


async def test_a_fault_in_a_source_costs_its_proposals_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = EditorWorkspace.of_folders([folder.as_uri()])
    monkeypatch.setattr("lsp_server.context.symbols.imports_of", lambda *_: 1 // 0)
    assert await snippets(workspace, opened(folder)) == []
    assert "ZeroDivisionError" in caplog.text
