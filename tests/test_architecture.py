"""Every module opens with one sentence that says what it owns."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("protocol", "kv_store", "inference", "lsp_server", "midfill", "lab", "bench")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_opens_with_what_it_owns(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert re.search(r"\.$", docstring.split("\n\n")[0]), path
