"""Files of cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from midfill_lab.evaluation.fidelity.cases import read_cases
from protocol.errors import BadInput

CASE = 'name: a call\nlanguage: c\nmodel: "x)"\nexpected: "f(x)\\n"\n---\nf(║)\n'


def test_cases_are_read_with_their_cursor(tmp_path: Path) -> None:
    file = tmp_path / "calls.txt"
    file.write_text(f"# Why.\n{CASE}%%%\n{CASE}", encoding="utf-8")
    first, second = read_cases(file)
    assert (first.name, second.name) == ("calls.txt, case 1 (a call)", "calls.txt, case 2 (a call)")
    assert (first.head, first.tail, first.model, first.expected) == ("f(", ")\n", "x)", "f(x)\n")
    assert (first.language_id, first.kind) == ("c", "case")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CASE.replace("model", "modle"), "case 1: wanted are the lines name, language, model, expected"),
        (CASE.replace("---\n", ""), "wanted are"),
        (CASE.replace("║", ""), "has 0 cursors"),
        (CASE.replace("║", "║║"), "has 2 cursors"),
        (CASE.replace('"x)"', "x)"), "JSON strings"),
        (CASE + "%%%\nname: b\n", "case 2: wanted are"),
    ],
)
def test_a_malformed_case_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "calls.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        read_cases(file)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xff")
    with pytest.raises(BadInput, match="cannot be read"):
        read_cases(tmp_path / "bytes")
