"""Usages for a place: lines of other files that use what is imported or called, most like the place first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lsp_server.context.index.database import IndexWriter
from lsp_server.context.index.scan import NO_RULES, scan
from lsp_server.context.index_sources import Usages
from lsp_server.context.proposals import FileText, PromptPlace, TextProposal

FILES = {
    "pkg/lib.py": "def load(path, mode): ...\n\n\ndef save(path): ...\n",
    "pkg/near.py": "from .lib import load\n\n\ndef run(root):\n    data = load(root / 'x', mode)\n    more(data)\n",
    "far/off.py": "from pkg.lib import load\n\nprint(load(first_path, second))\n",
    "pkg/other.ts": "import { load } from './lib';\n\nload(typescript);\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    write(folder, FILES)
    return folder


def write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def usages(folder: Path) -> Usages:
    file = folder.parent / "index.sqlite"
    writer = IndexWriter(file)
    scan(folder, writer, NO_RULES)
    writer.close()
    return Usages({folder: file})


def place(folder: Path, head: str, near: str, open_texts: tuple[FileText, ...] = ()) -> PromptPlace:
    uri = (folder / "pkg" / "a.py").as_uri()
    lines = tuple(near.splitlines(keepends=True))
    return PromptPlace(uri, "python", tuple(head.splitlines(keepends=True)), lines, ("",), open_texts)


def proposed(folder: Path, head: str, near: str) -> list[TextProposal]:
    return list(usages(folder).propose(place(folder, head, near)))


def texts(proposals: list[TextProposal]) -> list[str]:
    return [each.text for each in proposals]


def test_uses_of_an_import_are_proposed_without_the_imports_and_definitions(folder: Path) -> None:
    found = proposed(folder, "from .lib import load\n", "x = ")
    assert sorted(texts(found)) == ["data = load(root / 'x', mode)\n", "print(load(first_path, second))\n"]
    assert {each.origin for each in found} == {"usages"}


def test_the_use_that_looks_most_like_the_place_is_first(folder: Path) -> None:
    near = proposed(folder, "from .lib import load\n", "root, mode = find()\nx = ")
    assert texts(near)[0] == "data = load(root / 'x', mode)\n"
    far = proposed(folder, "from .lib import load\n", "first_path, second = find()\nx = ")
    assert texts(far)[0] == "print(load(first_path, second))\n"


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("    assert job.start(", "assert job.start(1)\n"),  # as the line begins
        ("        found = pool.last.", "other = pool.last.start(3)\n"),  # the word before the cursor
        ("        found = ", "found = start_of(job.start(2))\n"),
    ],
)
def test_a_line_like_the_one_at_the_cursor_is_first(folder: Path, line: str, first: str) -> None:
    far = "found = start_of(job.start(2))\nassert job.start(1)\nother = pool.last.start(3)\n"
    write(folder, {"pkg/near.py": "", "far/off.py": far})
    assert texts(proposed(folder, "", f"x.start(0)\n{line}"))[0] == first


def test_methods_that_are_called_near_the_cursor_count(folder: Path) -> None:
    write(folder, {"pkg/jobs.py": "job.start(now, 3)\n"})
    assert texts(proposed(folder, "", "other.start(1)\n")) == ["job.start(now, 3)\n"]
    assert texts(proposed(folder, "", "start(1)\n")) == []


def test_a_call_over_several_lines_is_whole_and_loses_its_indentation(folder: Path) -> None:
    write(folder, {"far/off.py": "def f():\n    load(\n        one,\n    )\n    more()\n", "pkg/near.py": ""})
    assert texts(proposed(folder, "from .lib import load\n", "x = ")) == ["load(\n    one,\n)\n"]
    for endless in ("    one,\n" * 20, "    " + "one, " * 1000 + "\n)\n"):
        write(folder, {"far/off.py": "load(\n" + endless})
        assert texts(proposed(folder, "from .lib import load\n", "x = ")) == []
    write(folder, {"far/off.py": "for one in load(more): {\n" + "    one,\n" * 20})
    assert texts(proposed(folder, "from .lib import load\n", "x = ")) == ["for one in load(more): {\n"]


def test_lines_of_equal_text_are_proposed_once(folder: Path) -> None:
    write(folder, {f"pkg/x{n}.py": "load(same)\n" for n in range(5)})
    assert texts(proposed(folder, "from .lib import load\n", "x = ")).count("load(same)\n") == 1


def test_a_proposal_knows_its_lines_and_the_state_of_its_file(folder: Path) -> None:
    (found,) = [each for each in proposed(folder, "from .lib import load\n", "x") if each.uri.endswith("near.py")]
    status = (folder / "pkg" / "near.py").stat()
    assert (found.first, found.lines) == (4, ("    data = load(root / 'x', mode)\n",))
    assert found.stamp == (status.st_mtime_ns, status.st_size)


def test_an_open_file_is_read_as_it_is_in_the_editor(folder: Path) -> None:
    edited = FileText((folder / "pkg" / "near.py").as_uri(), ("load(unsaved)\n",))
    found = usages(folder).propose(place(folder, "from .lib import load\n", "x", (edited,)))
    assert "load(unsaved)\n" in [each.text for each in found]
    assert not any("root / 'x'" in each.text for each in found)


def test_an_open_file_is_known_by_the_uri_of_its_editor(folder: Path) -> None:
    write(folder, {"pkg/+page.py": "load(saved)\n"})
    uri = (folder / "pkg" / "+page.py").as_uri().replace("%2B", "+")  # as Neovim writes it
    found = usages(folder).propose(place(folder, "from .lib import load\n", "x", (FileText(uri, ("load(unsaved)\n",)),)))
    assert "load(saved)\n" not in texts(list(found))
    assert [each.uri for each in found if each.text == "load(unsaved)\n"] == [uri]


@pytest.mark.parametrize("name", ["notes.ipynb#python", "tool"])
def test_the_language_of_a_document_need_not_stand_in_its_path(folder: Path, name: str) -> None:
    here = replace(place(folder, "from .lib import load\n", "x"), uri=f"{(folder / 'pkg').as_uri()}/{name}")
    assert len(usages(folder).propose(here)) == 2


def test_changed_files_are_read_again(folder: Path) -> None:
    source, here = usages(folder), place(folder, "from .lib import load\n", "x")
    assert len(source.propose(here)) == 2
    write(folder, {"far/off.py": "load(changed_since)\n"})
    os.utime(folder / "far" / "off.py", ns=(1, 1))
    assert "load(changed_since)\n" in [each.text for each in source.propose(here)]
    (folder / "far" / "off.py").unlink()
    assert len(source.propose(here)) == 1


def test_without_an_index_or_names_there_are_none(folder: Path) -> None:
    source = Usages({folder: folder / "none.sqlite"})
    assert source.propose(place(folder, "from .lib import load\n", "x")) == []
    assert list(Usages({}).propose(place(folder, "from .lib import load\n", "x"))) == []
    assert list(usages(folder).propose(place(folder, "", "x = 1\n"))) == []
