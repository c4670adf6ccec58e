"""No deeper than the lines above ask for."""

from __future__ import annotations

import pytest

from lsp_server.filters.extra_indentation import drop_extra_indentation
from tests.lsp_server.filters.golden import filtered

BODY = "def f():\n    x = 1\n"


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        (BODY + "    ║", "    return x", "return x"),
        (BODY + "    ║", "    for a in b:\n            c()\n        d()", "for a in b:\n        c()\n    d()"),
        ("def f():\n    if a:\n    ║", "    return x", "    return x"),  # the line above opens a block
        ("def f():\n    if a:\n    ║", "        return x", "    return x"),
        ("def f():\n    if a:\n        ║", "    return x", "return x"),
        (BODY + "║", "    return x", "    return x"),  # back to the depth of the line above
        ("║", "    import os", "import os"),
        (BODY + "    y =║", "    1", "    1"),  # not a blank line
        (BODY + "    ║", "\n        y", "\n        y"),  # begins on the next line
        (BODY + "    ║", "    ", "    "),  # nothing to indent
        (BODY + "\n\n    ║", "    return x", "return x"),  # blank lines say nothing
        # lines less deep than the first: it says the indentation of the cursor's line again
        (BODY + "    ║", "    if a:\n        b()\n    c()", "if a:\n        b()\n    c()"),
        (BODY + "        ║", "    if a:\n        b()\n\n    c()", "if a:\n            b()\n\n        c()"),
        (BODY + "        ║", "    if a:\n            b()\n        c()", "if a:\n            b()\n        c()"),
    ],
)
def test_extra_indentation_is_taken_back(marked: str, text: str, inserted: str) -> None:
    assert filtered(drop_extra_indentation, marked, text) == marked.replace("║", f"⟦{inserted}⟧")
