"""The index's own process: `python -m lsp_server.context.index FOLDER` brings a folder's index up to date."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from lsp_server.context.index.database import IndexWriter, index_file, remove_unused
from lsp_server.context.index.scan import scan
from lsp_server.exclusion.exclusion import Exclusion


def main() -> None:
    """Scan the folder that the command line names; another process that scans it already is left to do so."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    if hasattr(os, "nice"):
        os.nice(10)
    folder = Path(os.path.realpath(sys.argv[1]))
    file = index_file(folder)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(Timeout), FileLock(file.with_name(f"{file.name}.lock"), timeout=0):
        with closing(IndexWriter(file)) as writer:
            scan(folder, writer, Exclusion([folder.as_uri()], time.monotonic, recheck_s=60.0).reason)
        file.touch()
        remove_unused()


if __name__ == "__main__":
    main()
