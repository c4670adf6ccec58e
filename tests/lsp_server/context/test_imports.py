"""Imports are read from documents that need not parse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context.symbols import Import, imports_of


def imports(text: str, path: str, language_id: str) -> list[Import]:
    return imports_of(text.splitlines(keepends=True), path, language_id)


PYTHON = "from ..x.y import (A,  # one\n    B as C)\nfrom . import mod\nimport os.path as osp, sys\nfrom a.b import (\n"
SCRIPT = (
    "import D, { type A, B as C } from '../x';\nimport * as ns from \"./y.js\"\n"
    "const {q: w, e} = require('./z')\nimport type { T } from 'pkg'\n"
)
FROM_SCRIPT = [
    *(("/src/x", "A", "A"), ("/src/x", "B", "C"), ("/src/x", "D", "D"), ("/src/a/y", "", "ns"), ("pkg", "T", "T")),
    *(("/src/a/z", "q", "w"), ("/src/a/z", "e", "e")),
]


@pytest.mark.parametrize("language_id", ["python", "typescript", "rust"])
@pytest.mark.parametrize("run", [" ", "\t", ".", "a", "export ", "import ", "const {", "from .", "use a::", "{", "("])
@pytest.mark.parametrize("begin", ["import ", "from ", "export x", "const x", "use a"])
def test_a_long_line_is_read_in_time(begin: str, run: str, language_id: str) -> None:
    """Trying what cannot fit from each of its characters would take minutes."""
    imports_of([begin + run * 100_000] * 300, "a.py", language_id)


@pytest.mark.parametrize(
    ("text", "path", "language_id", "expected"),
    [
        (
            PYTHON,
            "pkg/sub/a.py",
            "python",
            [
                *(("/pkg/x/y", "A", "A"), ("/pkg/x/y/A", "", "A"), ("/pkg/x/y", "B", "C"), ("/pkg/x/y/B", "", "C")),
                *(("/pkg/sub", "mod", "mod"), ("/pkg/sub/mod", "", "mod"), ("os/path", "", "osp"), ("sys", "", "sys")),
            ],
        ),
        *((SCRIPT, "src/a/b.ts", language_id, FROM_SCRIPT) for language_id in ("typescript", "javascriptreact", "vue")),
        (
            "use crate::x::{A, B as C};\npub use super::y::Z;\n",
            "src/a.rs",
            "rust",
            [("x", "A", "A"), ("x", "B", "C"), ("y", "Z", "Z")],
        ),
        ("from a import b\n", "a.txt", "plaintext", []),
    ],
)
def test_what_is_imported(text: str, path: str, language_id: str, expected: list[tuple[str, str, str]]) -> None:
    assert imports(text, path, language_id) == [Import(*each) for each in expected]


PIECES = st.sampled_from(
    ["from ", "import ", "a.b", "..", " as ", "(", ")", "{", "}", ",", "\n", "'", "require(", "use ", "::", "*"]
)


@given(st.lists(PIECES, max_size=60).map("".join), st.sampled_from(["python", "typescript", "rust"]))
def test_any_text_is_read(text: str, language_id: str) -> None:
    for each in imports(text, "a/b.py", language_id):
        assert each.local or each.module
