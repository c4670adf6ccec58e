"""The index's own process: `python -m lsp_server.context.index` answers requests, one JSON object per line.

It ends when its input does, so it does not outlive the language server.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys

import msgspec

from lsp_server.context.index.keeper import IndexRequest
from lsp_server.context.index.scan import answer


def main() -> None:
    """Answer each line of the standard input by one of the standard output; an error ends the process.

    A folder that cannot be written, or a full disk, is said in one line.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    if hasattr(os, "nice"):
        os.nice(10)
    for line in sys.stdin.buffer:
        try:
            done = answer(msgspec.json.decode(line, type=IndexRequest))
        except (OSError, sqlite3.Error) as error:
            sys.exit(f"the index cannot be written: {error}")
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
