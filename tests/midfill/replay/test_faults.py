"""The checker finds what it is there for, and nothing else. `║` is the cursor."""

from __future__ import annotations

import pytest

from lsp_server.editing.documents import Document
from midfill.headless.lsp_values import Suggestion
from midfill.replay.faults import CLOSERS, DUPLICATE, find_faults
from midfill.replay.trace import position_at


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("x = ║", "1", []),
        ("f(║)", "a", []),
        ("f(║)", "g(a)", []),
        ("f(║", "a)", []),
        ("x = ║ + 1", "2", []),
        ("a║\nb\n", "\nc", []),
        ("f(║)", "a)", [CLOSERS]),
        ("f(║\n    b)", "a)", [CLOSERS]),
        ("x = ║", "a]", [CLOSERS]),
        ("f(║, second)", "a, second)", [DUPLICATE, CLOSERS]),
        ("x = ║ + total", "1 + total", [DUPLICATE]),
        ("re║turn x", "turn x", [DUPLICATE]),
        ("║\nreturn x\n", "y = 1\nreturn x\nz", [DUPLICATE]),
        ("ret║\n\nreturn x\n", "urn x", [DUPLICATE]),
        ("║\n    return x\n", "return x", []),
    ],
)
def test_rudeness(marked: str, text: str, expected: list[str]) -> None:
    offset = marked.index("║")
    document = Document.from_text("file:///a", "python", 1, marked.replace("║", ""))
    cursor = position_at(document.text, offset)
    assert find_faults(document, Suggestion(text, cursor, cursor)) == expected
