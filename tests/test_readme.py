"""The documents: what they link to and name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("vscode-client/*.md")])
RESIDENCY = (ROOT / "docs" / "residency.md").read_text(encoding="utf-8")
FOLDERS = "lab|inference|kv_store|lsp_server|midfill|protocol|tests|bench|nvim|vscode-client"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_files_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = re.findall(rf"(?<![\w/.])((?:{FOLDERS})/[a-z\d_/.-]+\.(?:py|lua|ts))", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_row_of_the_comparison_names_a_test() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 13
    for row in rows:
        found = re.search(r"\[([^]]+)\]\(\.\./((?:tests|vscode-client)/[^)]+)\) \|$", row)
        assert found, row
        name, path = found.groups()
        assert re.search(rf'(def |test\("){re.escape(name)}\b', (ROOT / path).read_text(encoding="utf-8")), row


def named_tests() -> list[tuple[str, str]]:
    """File and function of every `tests/...py::test_...`; `::test_...` alone is of the file named before it."""
    found, file = [], ""
    for path, name in re.findall(r"`(tests/[\w/]+\.py)?::(test_\w+)`", RESIDENCY):
        file = path or file
        found.append((file, name))
    return found


@pytest.mark.parametrize(("file", "name"), named_tests())
def test_a_test_that_the_page_on_residency_names_exists(file: str, name: str) -> None:
    assert re.search(rf"def {name}\(", (ROOT / file).read_text(encoding="utf-8"))


def test_all_of_the_page_on_residency_is_looked_at() -> None:
    assert len(named_tests()) == RESIDENCY.count("::test_")
