"""Times the language server itself: from its start to the answer to `initialize`, and per `textDocument/didChange`.

    python bench/language_server.py [--starts 10] [--edits 2000] [--json FILE]

Starts `midfill lsp` as a process and times it from its start to its first answer. Then times the handler of
`didChange` on documents of 500 and 50,000 lines, one edit in each at a time. No core and no model take part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Annotated

import typer
from figures import JsonFile, write
from lsprotocol import types

from lsp_server.features import text_documents
from lsp_server.server import MidfillServer
from midfill.replay.results import percentile
from protocol.settings import Settings

DOCUMENT_LINES = (500, 50_000)
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}).encode()
NO_CORE = "ws://127.0.0.1:9/ws"


def first_answer_ms() -> float:
    """From the start of a language server's process to its answer to `initialize`."""
    since = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "midfill", "lsp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"MIDFILL_CORE": NO_CORE},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(INITIALIZE) + INITIALIZE)
        process.stdin.flush()
        process.stdout.readline()
        elapsed = (time.perf_counter() - since) * 1000
    process.wait()
    return elapsed


def did_change_ms(edits: int) -> dict[int, list[float]]:
    """The times of `edits` single characters typed in the middle of a document of each size."""
    server = MidfillServer(Settings())
    for lines in DOCUMENT_LINES:
        text = "".join(f"    value_{line} = compute({line})\n" for line in range(lines))
        server.session.documents.open(f"file:///{lines}.py", "python", 0, text)
    times: dict[int, list[float]] = {lines: [] for lines in DOCUMENT_LINES}
    for edit in range(edits):
        for lines in DOCUMENT_LINES:
            place = types.Position(lines // 2, edit % 40)
            change = types.TextDocumentContentChangePartial(types.Range(place, place), "x" if edit % 10 else "\n")
            identifier = types.VersionedTextDocumentIdentifier(edit + 1, f"file:///{lines}.py")
            since = time.perf_counter()
            text_documents.did_change(server, types.DidChangeTextDocumentParams(identifier, [change]))
            times[lines].append((time.perf_counter() - since) * 1000)
    return times


def main(
    starts: Annotated[int, typer.Option(min=1)] = 10,
    edits: Annotated[int, typer.Option(min=1)] = 2000,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print medians and 99th percentiles in milliseconds."""
    measured = {"start to initialize answered": [first_answer_ms() for _ in range(starts)]}
    measured |= {f"didChange, {lines:,} lines": times for lines, times in did_change_ms(edits).items()}
    rows = {
        what: {f"p{rank}_ms": round(percentile(times, rank / 100), 4) for rank in (50, 99)} for what, times in measured.items()
    }
    for what, row in rows.items():
        print(f"{what:32} p50 {row['p50_ms']:9.3f} ms   p99 {row['p99_ms']:9.3f} ms")
    write(json_file, rows)


if __name__ == "__main__":
    typer.run(main)
