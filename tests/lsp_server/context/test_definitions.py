"""Definitions for a place: what is imported and used comes first, from the file that it is imported from."""

from collections.abc import Iterable
from pathlib import Path

from lsp_server.context.definitions import Definitions
from lsp_server.context.index.database import Found
from lsp_server.context.proposals import Place, TextProposal

FOLDER = Path("/w")
KNOWN = [
    Found("pkg/lib.py", (1, 1), "load", "", "def load(path):", 3, ("def load(path):\n",)),
    Found("pkg/other.py", (1, 1), "load", "", "def load(other):", 3, ("def load(other):\n",)),
    Found("pkg/lib.py", (1, 1), "save", "", "def save(path):", 9, ("def save(path):\n",)),
    Found("pkg/lib.py", (1, 1), "run", "Job", "def run(self):", 20, ("    def run(self):\n",)),
    Found("pkg/lib.py", (1, 1), "Job", "", "class Job:\n    def run(self):", 19, ("class Job:\n",)),
    Found("pkg/lib.ts", (1, 1), "load", "", "function load()", 3, ("function load() {\n",)),
    Found("pkg/a.py", (1, 1), "load", "", "def load(own):", 3, ("def load(own):\n",)),
    *(Found(f"pkg/x{n}.py", (1, 1), "go", "X", "def go(self):", 1, ("def go(self):\n",)) for n in range(5)),
]


def look_up(_: Path, names: Iterable[str]) -> list[Found]:
    wanted = set(names)
    return [each for each in KNOWN if each.name in wanted]


def proposed(head: str, near: str, path: str = "/w/pkg/a.py", language_id: str = "python") -> list[TextProposal]:
    lines = tuple(near.splitlines(keepends=True))
    place = Place(Path(path).as_uri(), language_id, tuple(head.splitlines(keepends=True)), lines, ("",))
    return list(Definitions({FOLDER: Path("/index")}, look_up).propose(place))


def shown(*arguments: str) -> list[str]:
    return [each.text.strip() for each in proposed(*arguments)]


def test_an_imported_symbol_is_taken_from_the_file_that_it_is_imported_from() -> None:
    assert shown("from pkg.lib import load\n", "x = load\n") == ["def load(path):"]
    assert shown("from .other import load\n", "x = load\n") == ["def load(other):"]


def test_what_is_used_near_the_cursor_comes_before_what_is_only_imported() -> None:
    assert shown("from .lib import load, save\n", "save(\n") == ["def save(path):", "def load(path):"]


def test_members_of_an_imported_module() -> None:
    assert shown("from . import lib\n", "lib.save(\n") == ["def save(path):"]
    assert shown("import pkg.lib as it\n", "it.save(\n") == ["def save(path):"]


def test_a_method_that_is_called_is_shown_within_its_class() -> None:
    assert shown("", "job.run(\n") == ["class Job:\n    def run(self):"]
    assert shown("", "run(\n") == []


def test_a_method_is_left_out_beside_its_whole_class() -> None:
    assert shown("from .lib import Job\n", "job.run(\n") == ["class Job:\n    def run(self):"]


def test_a_name_that_many_classes_have_says_nothing() -> None:
    assert shown("", "x.go(\n") == []


def test_a_symbol_of_another_package_or_language_is_not_meant() -> None:
    assert shown("from elsewhere import load\n", "load(\n") == []
    assert [each.uri for each in proposed("import { load } from './lib'", "load(", "/w/pkg/b.ts", "typescript")] == [
        "file:///w/pkg/lib.ts"
    ]


def test_the_document_itself_and_documents_outside_get_nothing() -> None:
    assert shown("from .a import load\n", "load(\n") == []
    assert shown("from pkg.lib import load\n", "load(\n", "/elsewhere/a.py") == []
    assert proposed("from pkg.lib import load\n", "load\n", "/w/pkg/deep/er.py")[0].stamp == (1, 1)
