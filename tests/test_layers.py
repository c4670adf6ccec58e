"""Imports point one way only: `lsp_server → protocol ← inference → kv_store`, and `midfill` wires them together."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
OURS = {"protocol", "kv_store", "inference", "lsp_server", "midfill"}
MAY_IMPORT = {
    "protocol": set(),
    "kv_store": set(),
    "lsp_server": {"protocol"},
    "inference": {"protocol", "kv_store"},
    "midfill": OURS,
}
MODEL_LIBRARIES = {"torch", "transformers", "accelerate", "safetensors", "tokenizers", "huggingface_hub"}
FORBIDDEN = {
    "protocol": {"pygls", "lsprotocol", "numpy", *MODEL_LIBRARIES},
    "lsp_server": {"numpy", *MODEL_LIBRARIES},
    "inference": {"pygls", "lsprotocol"},
    "kv_store": {"pygls", "lsprotocol", "transformers", "tokenizers"},
}
# They decide from text and numbers alone: no model, no protocol library, no input or output.
PURE_MODULES = [
    "lsp_server/prompts/anchors.py",
    "lsp_server/editing/brackets.py",
    "lsp_server/editing/documents.py",
    "lsp_server/editing/languages.py",
    "lsp_server/suggesting/last_suggestion.py",
    *sorted(str(file.relative_to(REPOSITORY)) for file in (REPOSITORY / "lsp_server/filters").glob("*.py")),
    "lsp_server/suggesting/debounce.py",
    "lsp_server/editing/positions.py",
    "lsp_server/prompts/planner.py",
    "lsp_server/suggesting/queries.py",
    "lsp_server/suggesting/stop_rules.py",
    "lsp_server/prompts/windows.py",
    "protocol/heat.py",
    "protocol/messages.py",
]
IMPURE = {"pygls", "lsprotocol", "websockets", "asyncio", "logging", "os", "pathlib", "subprocess", *MODEL_LIBRARIES}


def imported(file: Path) -> Iterator[str]:
    """The top-level packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("package", sorted(OURS))
def test_packages_import_only_what_they_may(package: str) -> None:
    files = sorted((REPOSITORY / package).rglob("*.py"))
    assert files
    for file in files:
        names = set(imported(file))
        assert (names & OURS) - {package} <= MAY_IMPORT[package], file
        assert not names & FORBIDDEN.get(package, set()), file


@pytest.mark.parametrize("module", PURE_MODULES)
def test_pure_modules_do_no_io(module: str) -> None:
    assert not set(imported(REPOSITORY / module)) & IMPURE


def test_the_language_server_comes_up_without_a_model_library() -> None:
    program = "import sys, lsp_server.launch; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    loaded = {name.partition(".")[0] for name in result.stdout.split()}
    assert "pygls" in loaded
    assert not loaded & {"numpy", *MODEL_LIBRARIES}
