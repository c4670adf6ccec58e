"""The mirror over the wire: whatever is typed, in whatever units, the server's text is the editor's."""

from __future__ import annotations

import hashlib
import random

import pytest

from lsp_server.documents.documents import Document, Edit, Position, line_length
from lsp_server.documents.positions import PositionCodec, PositionEncoding
from tests.lsp_server.editor import URI, connected_editor
from tests.lsp_server.fake_core import FakeCore

PIECES = [
    *("a", "def f():", "\n", "\r\n", "\r", "\t", "é", "e\u0301"),
    *("한", "😋", "👩\u200d💻", "\u2028", "\f", "\x85", "\ufeff", ""),
]
EDITS = 150


def random_place(random_: random.Random, document: Document) -> Position:
    line = random_.randrange(len(document.lines))
    return Position(line, random_.randint(0, line_length(document.lines[line])))


@pytest.mark.parametrize("encoding", PositionEncoding)
@pytest.mark.parametrize("seed", range(2))
async def test_random_editing(core: FakeCore, encoding: PositionEncoding, seed: int) -> None:
    random_, codec = random.Random(seed), PositionCodec(encoding)
    mine = Document.from_text(URI, "python", 1, "x = '😋'\r\n\n\ty = 2\r")
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, encoding=encoding.value)
        editor.open(mine.text)
        for version in range(2, EDITS):
            start, end = sorted(random_place(random_, mine) for _ in range(2))
            if random_.random() < 0.7:
                end = start
            text = "".join(random_.choices(PIECES, k=random_.randrange(4)))
            first, last = codec.encode(mine, start), codec.encode(mine, end)
            editor.change(version, (first.line, first.character), (last.line, last.character), text)
            mine.apply(Edit(start, end, text))
        said = await editor.document_hash()
        assert said.sha256 == hashlib.sha256(mine.text.encode()).hexdigest()
        assert (said.version, said.length) == (EDITS - 1, len(mine.text))
        assert editor.resyncs == []
