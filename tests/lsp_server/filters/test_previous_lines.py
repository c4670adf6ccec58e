"""The lines above the cursor are not said again."""

from __future__ import annotations

import pytest

from lsp_server.filters.previous_lines import drop_previous_lines
from tests.lsp_server.filters.golden import filtered


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        ("import os\n║", "import os", ""),
        ("import os\nimport ║", "os", ""),
        ("import os\n\n║", "import os", ""),
        ("a = f(1)\nb = f(2)\n║", "a = f(1)\nb = f(2)", ""),
        ("result.append(x)\n║", "result.app", ""),
        ("    def f(self):\n        g()\n\n    ║", "def f(self):\n        g()\n\n    def f(self):", ""),
        ("}\n}\n║", "}\n}\n}", "}\n}\n}"),
        ("import os\n║", "import sys", "import sys"),
        ("import os\nimport ║", "re", "re"),
        ("x = foo(1)\nx = f║", "oo", "oo"),
        ("a = f(1)\nb = f(2)\n║", "b = f(2)\nc = f(3)", "b = f(2)\nc = f(3)"),
        ("    }\n  ║", "}", "}"),
        ("║", "x", "x"),
    ],
)
def test_said_once(marked: str, text: str, inserted: str) -> None:
    assert filtered(drop_previous_lines, marked, text) == marked.replace("║", f"⟦{inserted}⟧" if inserted else "║")
