"""Converts a source file into a session for `midfill replay` in which some of its statements are typed, key by key.

    python bench/typed_session.py FILE SESSION.json [--statements 60] [--lines 6] [--seed 0]
    midfill replay SESSION.json --language python --strategies efim --moves

It reads Python, JavaScript and TypeScript.

Whole statements are taken out of the file and typed again where they were, from the top down: a line is opened below
the one before, with its indentation, as editors do, then each transaction types one character. It stands in for
recorded sessions in these languages, and is easier: it has no corrections, and the rest of the file is complete.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated

import tree_sitter_javascript
import tree_sitter_typescript
import typer
from tree_sitter import Language, Node, Parser

_GRAMMARS = {
    ".js": tree_sitter_javascript.language,
    ".mjs": tree_sitter_javascript.language,
    ".ts": tree_sitter_typescript.language_typescript,
    ".tsx": tree_sitter_typescript.language_tsx,
}
_STATEMENTS = ("_statement", "_declaration", "_definition")  # ends of the names of their nodes
_ROWS = re.compile(r"[^\n]*\n|[^\n]+")  # as parsers count them
_KEYS = re.compile(r"\n[ \t]*|.")


def typed_session(text: str, suffix: str, statements: int, lines: int, seed: int) -> dict[str, object]:
    """The session as a trace: the text without up to `statements` statements of up to `lines` lines, and their keys.

    `suffix` is that of the file's name.
    """
    rows = _ROWS.findall(text)
    spans = _spans(list(_statements(text, suffix)), rows, statements, lines, seed)
    missing = {row for first, last in spans for row in range(first, last)}
    start = "".join(row for number, row in enumerate(rows) if number not in missing)
    transactions = []
    for first, last in spans:
        position = sum(map(len, rows[:first])) - 1  # the end of the line above
        for key in _KEYS.findall("\n" + "".join(rows[first:last]).removesuffix("\n")):
            transactions.append({"patches": [[position, 0, key]]})
            position += len(key)
    return {"startContent": start, "endContent": text, "txns": transactions}


def _spans(statements: list[tuple[int, int]], rows: list[str], count: int, lines: int, seed: int) -> list[tuple[int, int]]:
    """The lines [first, last) of statements that are alone on them, the upper ones first; no two of them touch."""
    found = [(first, last) for first, last in statements if first > 0 and last - first <= lines]
    Random(seed).shuffle(found)
    chosen: list[tuple[int, int]] = []
    for first, last in found:
        alone = rows[first - 1].endswith("\n") and not re.search(r";(?!\s*$)", rows[first])
        if len(chosen) < count and alone and all(last < other or end < first for other, end in chosen):
            chosen.append((first, last))
    return sorted(chosen)


def _statements(text: str, suffix: str) -> Iterator[tuple[int, int]]:
    """The lines [first, last) of every statement."""
    if suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.stmt) and node.end_lineno is not None and not getattr(node, "decorator_list", ()):
                yield node.lineno - 1, node.end_lineno
    elif suffix in _GRAMMARS:
        source = text.encode()
        yield from _script_statements(Parser(Language(_GRAMMARS[suffix]())).parse(source).root_node, source)
    else:
        raise typer.BadParameter(f"{suffix or 'no suffix'}: expected .py or {', '.join(_GRAMMARS)}")


def _script_statements(node: Node, source: bytes) -> Iterator[tuple[int, int]]:
    """The lines of the statements below a node that begin and end lines of their own."""
    for child in node.named_children:
        before = source[source.rfind(b"\n", 0, child.start_byte) + 1 : child.start_byte]
        end = source.find(b"\n", child.end_byte)
        behind = source[child.end_byte : len(source) if end < 0 else end]
        if child.type.endswith(_STATEMENTS) and not before.strip() and not behind.strip():
            yield child.start_point.row, child.end_point.row + 1
        yield from _script_statements(child, source)


def main(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    session: Annotated[Path, typer.Argument(help="Trace file to write.")],
    statements: Annotated[int, typer.Option(min=1, help="Maximum number of statements to type.")] = 60,
    lines: Annotated[int, typer.Option(min=1, help="Maximum number of lines per statement.")] = 6,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Write the session."""
    made = typed_session(file.read_text(encoding="utf-8"), file.suffix, statements, lines, seed)
    session.write_text(json.dumps(made) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
