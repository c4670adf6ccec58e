"""ARCHITECTURE.md names every module, with the sentence that the module opens with, and none that is gone."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("protocol", "kv_store", "inference", "lsp_server", "midfill", "bench")


def opening_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def file_table() -> str:
    """The tables of ARCHITECTURE.md as they have to be; running this file writes them into the page."""
    parts = []
    for package in PACKAGES:
        for folder in sorted({path.parent for path in (ROOT / package).rglob("*.py")}):
            rows = [f"| `{path.name}` | {opening_sentence(path)} |" for path in sorted(folder.glob("*.py"))]
            parts.append("\n".join([f"### `{folder.relative_to(ROOT)}/`\n", "| file | owns |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def test_every_module_opens_with_what_it_owns() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert re.search(r"\.$", opening_sentence(path)), path


def test_the_page_names_every_module() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert page.endswith(file_table())


if __name__ == "__main__":
    page = ROOT / "ARCHITECTURE.md"
    text, _, _ = page.read_text(encoding="utf-8").partition("## The files\n")
    page.write_text(f"{text}## The files\n\n{file_table()}", encoding="utf-8")
