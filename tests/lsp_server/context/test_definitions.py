"""Definitions for a place: what is imported and used comes first, from the file that it is imported from."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from lsp_server.context.index.database import IndexedDefinition
from lsp_server.context.index_sources import Definitions
from lsp_server.context.proposals import PromptPlace, TextProposal

FOLDER = Path("/w")
KNOWN = [
    IndexedDefinition("pkg/lib.py", (1, 1), "load", "", "def load(path):", 3, ("def load(path):\n",)),
    IndexedDefinition("pkg/other.py", (1, 1), "load", "", "def load(other):", 3, ("def load(other):\n",)),
    IndexedDefinition("pkg/lib.py", (1, 1), "save", "", "def save(path):", 9, ("def save(path):\n",)),
    IndexedDefinition("pkg/lib.py", (1, 1), "run", "Job", "def run(self):", 20, ("    def run(self):\n",)),
    IndexedDefinition("pkg/lib.py", (1, 1), "Job", "", "class Job:\n    def run(self):", 19, ("class Job:\n",)),
    IndexedDefinition("pkg/lib.ts", (1, 1), "load", "", "function load()", 3, ("function load() {\n",)),
    IndexedDefinition("pkg/a.py", (1, 1), "load", "", "def load(own):", 3, ("def load(own):\n",)),
    *(IndexedDefinition(f"pkg/x{n}.py", (1, 1), "go", "X", "def go(self):", 1, ("def go(self):\n",)) for n in range(5)),
]


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(_: Path, names: Iterable[str]) -> list[IndexedDefinition]:
        wanted = set(names)
        return [each for each in KNOWN if each.name in wanted]

    monkeypatch.setattr("lsp_server.context.index_sources.look_up", look_up)


def proposed(head: str, near: str, path: str = "/w/pkg/a.py", language_id: str = "python") -> list[TextProposal]:
    lines = tuple(near.splitlines(keepends=True))
    place = PromptPlace(Path(path).as_uri(), language_id, tuple(head.splitlines(keepends=True)), lines, ("",))
    return list(Definitions({FOLDER: Path("/index")}).propose(place))


@pytest.mark.parametrize(
    ("head", "near", "expected"),
    [
        # an imported symbol is taken from the file that it is imported from
        ("from pkg.lib import load\n", "x = load\n", ["def load(path):"]),
        ("from .other import load\n", "x = load\n", ["def load(other):"]),
        # what is used near the cursor comes before what is only imported
        ("from .lib import load, save\n", "save(\n", ["def save(path):", "def load(path):"]),
        # members of an imported module
        ("from . import lib\n", "lib.save(\n", ["def save(path):"]),
        ("import pkg.lib as it\n", "it.save(\n", ["def save(path):"]),
        # a method that is called is shown within its class, and left out beside the whole class
        ("", "job.run(\n", ["class Job:\n    def run(self):"]),
        ("", "run(\n", []),
        ("from .lib import Job\n", "job.run(\n", ["class Job:\n    def run(self):"]),
        # a name that many classes have says nothing, nor do symbols of other packages or of the document itself
        ("", "x.go(\n", []),
        ("from elsewhere import load\n", "load(\n", []),
        ("from .a import load\n", "load(\n", []),
    ],
)
def test_what_is_proposed(head: str, near: str, expected: list[str]) -> None:
    assert [each.text.strip() for each in proposed(head, near)] == expected


def test_a_symbol_of_another_language_is_not_meant() -> None:
    found = proposed("import { load } from './lib'", "load(", "/w/pkg/b.ts", "typescript")
    assert [each.uri for each in found] == ["file:///w/pkg/lib.ts"]


def test_documents_outside_of_the_folder_get_nothing() -> None:
    assert proposed("from pkg.lib import load\n", "load(\n", "/elsewhere/a.py") == []
    assert proposed("from pkg.lib import load\n", "load\n", "/w/pkg/deep/er.py")[0].stamp == (1, 1)
