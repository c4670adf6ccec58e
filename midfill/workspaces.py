"""The workspace of a file outside of an editor, and its context as a language server would have it ready."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lsp_server.context.index.process import scan_apart
from lsp_server.context.proposals import INDEXED
from lsp_server.editing.documents import Position
from lsp_server.prompts.surroundings import enabled_sources
from lsp_server.suggesting.open_document import OpenDocument
from protocol.settings import Settings

_INDEX_S = 20.0  # for a folder that has no index yet


def workspace_of(path: Path) -> Path:
    """The root of the file's repository, or its own folder if it is in none."""
    return next((folder for folder in path.parents if (folder / ".git").exists()), path.parent)


async def gathered(opened: OpenDocument, cursor: Position, folder: Path, settings: Settings) -> bool:
    """Bring the folder's index up to date, and gather proposals; False if the index takes more than 20 seconds."""
    in_time = True
    if not INDEXED.isdisjoint(enabled_sources(settings)):
        try:
            await asyncio.wait_for(scan_apart(folder), _INDEX_S)
        except TimeoutError:
            in_time = False
    await opened.gather(cursor, settings)
    return in_time
