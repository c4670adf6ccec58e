"""Half an hour of typing, with suggestions accepted all the time: what the counting holds in memory."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

from lsp_server.documents.documents import Position
from lsp_server.documents.positions import ClientPosition
from lsp_server.filters.cursor_context import Insertion
from lsp_server.suggesting.open_documents import Change, OpenDocuments
from lsp_server.usage.acceptance import Acceptances
from lsp_server.usage.statistics import Recorder
from protocol.settings import Settings

KEYS = 30 * 60 * 2
LINE = "value = call(one, two)"
TYPED = 8  # characters of each line; the rest is accepted


async def test_half_an_hour_of_typing_does_not_grow_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "statistics.sqlite", lambda: "bundled", save_s=3600)
    acceptances = Acceptances(recorder)
    documents = OpenDocuments(Settings())
    documents.on_change = acceptances.on_edit
    documents.open("file:///a", "python", 1, "")

    def edit(first: tuple[int, int], last: tuple[int, int], text: str) -> None:
        documents.change("file:///a", 1, [Change(text, (ClientPosition(*first), ClientPosition(*last)))])

    async def type_keys(keys: int) -> int:
        """Bytes held after so many keys, in a document that stays small."""
        opened = documents["file:///a"]
        for key in range(keys):
            column = key % TYPED
            edit((0, column), (0, column), LINE[column])
            rest = (Insertion(LINE[column + 1 :]),)
            number = acceptances.answered(opened, Position(0, column + 1), rest, 5.0)
            if column == TYPED - 1:
                edit((0, TYPED), (0, TYPED), LINE[TYPED:])
                acceptances.accepted(number, 0)
                edit((0, 0), (0, 0), "\n")
                if len(opened.document.lines) > 250:
                    edit((249, 0), tuple(opened.document.end), "")
        await asyncio.sleep(0)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        early = await type_keys(KEYS // 2)  # by then as many texts are followed as ever
        late = await type_keys(KEYS // 2)
    finally:
        tracemalloc.stop()
    recorder.close()
    assert len(acceptances.kept._followed) == 200
    assert late - early < 100_000, (early, late)
