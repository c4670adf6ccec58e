"""Hooks of mkdocs: adds the pages that stand outside of `docs`, and the generated list of modules, to the site."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGES = ("midfill", "lsp_server", "protocol", "inference", "kv_store", "lab/midfill_lab")
PAGES = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s:]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "modules.md", content="\n".join(_modules())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to their pages; where there is no page, into their path."""
    sources = {page: source for source, page in PAGES.items()}
    at_root = page.file.src_uri in sources
    folder = "" if at_root else "docs"

    def fixed(link: re.Match[str]) -> str:
        text, target = link.groups()
        path, _, anchor = target.partition("#")
        if not path:
            return link.group()
        path = normpath(f"{folder}/{path}" if folder else path)
        uri = PAGES.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(uri) is not None:
            return f"[{text}]({uri}{'#' if anchor else ''}{anchor})"
        if not (ROOT / path).exists():
            return link.group()  # mkdocs reports it
        return text if path in text else f"{text} (`{path}`)"

    return _LINK.sub(fixed, markdown)


def _modules() -> Iterator[str]:
    """Every module with the first sentence of its docstring, package by package."""
    yield "# Modules\n"
    yield "The first sentence of every module, generated from the source: see [Architecture](architecture.md).\n"
    for package in PACKAGES:
        for folder in sorted({file.parent for file in (ROOT / package).rglob("*.py")}):
            name = folder.relative_to(ROOT).as_posix()
            yield f"\n{'##' if name == package else '###'} {name}\n"
            if sentence := _first_sentence(folder / "__init__.py"):
                yield f"{sentence}\n"
            modules = [file for file in sorted(folder.glob("*.py")) if not file.name.startswith("__")]
            if modules:
                yield "| module | |\n| --- | --- |"
                yield from (f"| `{file.stem}` | {_first_sentence(file)} |" for file in modules)


def _first_sentence(file: Path) -> str:
    """The first paragraph of a module's docstring, safe in a cell of a table; empty if there is none."""
    if not file.exists():
        return ""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|").replace("<", "&lt;")
