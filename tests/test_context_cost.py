"""Sources of snippets cost no keystroke anything: what is typed recomputes as much with all of them as with none."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lsp_server.context.index.database import IndexWriter, index_file
from lsp_server.context.index.scan import Rules, scan
from lsp_server.exclusion.exclusion import Exclusion
from protocol.messages import CompletionRequest
from protocol.settings import ContextSource, Settings
from tests.sessions import session
from tests.test_sessions import KEYS, WRITING, Desk, sources


@dataclass
class IndexedDesk(Desk):
    """A desk whose documents are files of an indexed folder."""

    origins: set[str] = field(default_factory=set)

    def check(self, request: CompletionRequest) -> None:
        opened = self.documents[request.session.removeprefix("test/")]
        self.origins |= {each.origin for each in opened.workspace.pool.selection(opened.session)}


async def played(folder: Path, texts: list[str], chosen: tuple[ContextSource, ...]) -> IndexedDesk:
    """A desk with the records of three sessions: in one of them, where the person jumps may weigh more than sources."""
    desks = [IndexedDesk(texts, Settings(context_sources=chosen, prepare_ahead="always"), folder.as_uri()) for _ in range(3)]
    for seed, desk in enumerate(desks):
        await desk.play(session(desk.copies(), WRITING, KEYS, seed))
    whole, *others = desks
    for desk in others:
        whole.records += desk.records
        whole.origins |= desk.origins
    return whole


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """The sources of this package, in a folder that is indexed, and some of them open."""
    texts = [f"from lib import more\n\n{text}" for text in sources("lsp_server/*.py")[1:9]]  # the first one is empty
    names = [f"{number}.py" for number in range(len(texts))]
    for name, text in [*zip(names, texts, strict=True), ("lib.py", "def more(path: str) -> int: ...\n")]:
        (tmp_path / name).write_text(text, encoding="utf-8")
    for number, text in enumerate(sources("lsp_server/suggesting/*.py")):
        (tmp_path / f"beside{number}.py").write_text(text, encoding="utf-8")
    writer = IndexWriter(index_file(tmp_path))
    scan(tmp_path, writer, Rules(Exclusion([tmp_path.as_uri()], time.monotonic).rules_of))
    writer.close()
    return texts


async def test_keystrokes_cost_the_same_with_all_sources(tmp_path: Path, texts: list[str]) -> None:
    today = await played(tmp_path, texts, ("similar",))
    every = await played(tmp_path, texts, ("definitions", "usages", "similar", "edits"))
    assert every.origins >= {"definitions", "usages", "similar", "edits"}
    assert today.origins == {"similar"}
    assert every.mean <= today.mean + 0.5
    assert every.hit_share() >= today.hit_share() - 0.002
