"""Which files of a folder a document's symbols are looked up in: those of its language, and of related ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsp_server.context.proposals import PromptPlace
from lsp_server.context.symbols import symbols_of


@pytest.mark.parametrize(
    ("language_id", "path", "alike"),
    [
        ("python", "a.ipynb", {"b.py", "b.pyi", "b.pyw"}),
        ("plaintext", "a.py", {"b.py", "b.pyi", "b.pyw"}),
        ("typescript", "script", {"b.js", "b.mts", "b.tsx", "b.vue"}),
        ("vue", "a.vue", {"b.js", "b.mts", "b.tsx", "b.vue"}),
        ("rust", "b.rs", set()),
        ("c", "a.c", set()),
    ],
)
def test_only_files_of_related_languages_are_others(language_id: str, path: str, alike: set[str]) -> None:
    folder = Path("/project")
    place = PromptPlace((folder / path).as_uri(), language_id, (), (), ())
    symbols = symbols_of(place, {folder: Path("/index")})
    assert symbols is not None
    others = ("b.py", "b.pyi", "b.pyw", "b.js", "b.mts", "b.tsx", "b.vue", "b.go", "b.rs", "b")
    assert {other for other in others if symbols.is_other_file(other)} == alike
