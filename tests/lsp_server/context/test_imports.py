"""Imports are read from documents that need not parse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context.imports import Import, imports_of


def imports(text: str, path: str, language_id: str) -> list[Import]:
    return imports_of(text.splitlines(keepends=True), path, language_id)


def test_python() -> None:
    text = (
        "from ..x.y import (A,  # one\n    B as C)\nfrom . import mod\nimport os.path as osp, sys\nfrom a.b import (\n"
    )
    assert imports(text, "pkg/sub/a.py", "python") == [
        Import("/pkg/x/y", "A", "A"),
        Import("/pkg/x/y/A", "", "A"),
        Import("/pkg/x/y", "B", "C"),
        Import("/pkg/x/y/B", "", "C"),
        Import("/pkg/sub", "mod", "mod"),
        Import("/pkg/sub/mod", "", "mod"),
        Import("os/path", "", "osp"),
        Import("sys", "", "sys"),
    ]


@pytest.mark.parametrize("language_id", ["typescript", "javascriptreact", "vue"])
def test_scripts(language_id: str) -> None:
    text = (
        "import D, { type A, B as C } from '../x';\nimport * as ns from \"./y.js\"\n"
        "const {q: w, e} = require('./z')\nimport type { T } from 'pkg'\n"
    )
    assert imports(text, "src/a/b.ts", language_id) == [
        Import("/src/x", "A", "A"),
        Import("/src/x", "B", "C"),
        Import("/src/x", "D", "D"),
        Import("/src/a/y", "", "ns"),
        Import("pkg", "T", "T"),
        Import("/src/a/z", "q", "w"),
        Import("/src/a/z", "e", "e"),
    ]


def test_rust() -> None:
    text = "use crate::x::{A, B as C};\npub use super::y::Z;\n"
    assert imports(text, "src/a.rs", "rust") == [Import("x", "A", "A"), Import("x", "B", "C"), Import("y", "Z", "Z")]


def test_other_languages_have_none() -> None:
    assert imports("from a import b\n", "a.txt", "plaintext") == []


PIECES = st.sampled_from(
    ["from ", "import ", "a.b", "..", " as ", "(", ")", "{", "}", ",", "\n", "'", "require(", "use ", "::", "*"]
)


@given(st.lists(PIECES, max_size=60).map("".join), st.sampled_from(["python", "typescript", "rust"]))
def test_any_text_is_read(text: str, language_id: str) -> None:
    for each in imports(text, "a/b.py", language_id):
        assert each.local or each.module
