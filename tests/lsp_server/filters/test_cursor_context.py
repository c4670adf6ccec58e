"""What is known of the cursor's surroundings."""

from __future__ import annotations

import pytest

from lsp_server.documents.documents import Document, Position
from lsp_server.documents.lexing import MOST_CHARS
from lsp_server.filters.cursor_context import context_at


@pytest.mark.parametrize("piece", ["\n", "a\n", "a" * 100 + "\n", "a"])
@pytest.mark.parametrize("more", [-1, 0, 1, 5_000])
def test_a_document_is_too_long_to_lex_by_its_characters(piece: str, more: int) -> None:
    text = (piece * (MOST_CHARS + more))[: MOST_CHARS + more]
    document = Document.from_text("file:///a", "python", 1, text)
    assert context_at(document, Position(0, 0)).is_too_long_to_lex == (len(text) > MOST_CHARS)
