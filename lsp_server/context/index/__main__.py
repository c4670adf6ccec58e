"""The index's own process: `python -m lsp_server.context.index` answers requests, one JSON object per line.

It ends when its input does, so it does not outlive the language server.
"""

from __future__ import annotations

import logging
import os
import sys

import msgspec

from lsp_server.context.index.keeper import IndexRequest
from lsp_server.context.index.scan import answer


def main() -> None:
    """Answer each line of the standard input by one of the standard output; an error ends the process."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    if hasattr(os, "nice"):
        os.nice(10)
    for line in sys.stdin.buffer:
        done = answer(msgspec.json.decode(line, type=IndexRequest))
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
