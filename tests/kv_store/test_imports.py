"""What the package's modules may import."""

import ast
from pathlib import Path

import pytest

import kv_store

MODULES = sorted(Path(kv_store.__file__).parent.rglob("*.py"))
WITH_TORCH = {"workspace"}


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    nodes = list(ast.walk(tree))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_only_what_holds_tensors_imports_torch(path: Path) -> None:
    of_torch = {name for name in imported(path) if name.split(".")[0] in ("numpy", "safetensors", "torch")}
    indirectly = {name for name in imported(path) if name.split(".")[-1] in WITH_TORCH}
    assert path.stem in WITH_TORCH or not of_torch | indirectly


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_sibling_is_imported(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & {"protocol", "inference", "lsp_server", "midfill"}
