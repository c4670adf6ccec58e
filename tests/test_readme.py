"""The comparison in the documents names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_row_of_the_comparison_names_a_test() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 13
    for row in rows:
        found = re.search(r"\[([^]]+)\]\(\.\./((?:tests|vscode-client)/[^)]+)\) \|$", row)
        assert found, row
        name, path = found.groups()
        assert re.search(rf'(def |test\("){re.escape(name)}\b', (ROOT / path).read_text(encoding="utf-8")), row
