"""The document's own indentation, which the lines above show."""

from __future__ import annotations

import pytest

from lsp_server.filters.own_indentation import use_own_indentation
from tests.lsp_server.filters.golden import filtered

TABS = "if a:\n\tb\nif c:\n\td\n"
TWOS = "if (a) {\n  b\n}\nif (c) {\n  d\n}\n"
FOURS = "if a:\n    b\n"


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        # tabs stay tabs
        (TABS + "if x:║", "\n    y\n    if z:\n        w", "\n\ty\n\tif z:\n\t\tw"),
        (TABS + "if x:║", "\n\ty\n\t\tz", "\n\ty\n\t\tz"),
        (TABS + "\tif x:║", "\n        y", "\n\t\ty"),
        (TABS + "if x:║", "\n  y\n  if z:\n    w", "\n\ty\n\tif z:\n\t\tw"),
        (FOURS + "if x:║", "\n\ty\n\t\tz", "\n    y\n        z"),
        # steps of two stay steps of two, and of four of four
        (TWOS + "if (x) {║", "\n    y\n    if (z) {\n        w\n    }\n}", "\n  y\n  if (z) {\n    w\n  }\n}"),
        (TWOS + "if (x) {║", "\n  y\n}", "\n  y\n}"),
        (FOURS + "if x:║", "\n  y\n  if z:\n    w", "\n    y\n    if z:\n        w"),
        # what is aligned stays so
        (FOURS + "x = f(║", "a,\n      b)", "a,\n      b)"),
        (FOURS + "x = f(║", "\n        a,\n        b)", "\n        a,\n        b)"),
        # no space too many
        (FOURS + "x = ║", " 1", "1"),
        (FOURS + "x =║", " 1", " 1"),
        (FOURS + "x = 1 ║", " # why", " # why"),
        (FOURS + "    ║", " return x", "return x"),
        (FOURS + "    ║", "    return x", "    return x"),
        (FOURS + "║", "    return x", "    return x"),
        (FOURS + "║", " return x", "return x"),
        (TABS + "\t║", "    return x", "\treturn x"),
    ],
)
def test_own_unit(marked: str, text: str, inserted: str) -> None:
    assert filtered(use_own_indentation, marked, text) == marked.replace("║", f"⟦{inserted}⟧")
