"""What is counted of suggestions, and what becomes of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from lsp_server.editing.documents import Edit, Position
from lsp_server.filters.cursor_context import Insertion
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.suggesting.open_documents import OpenDocuments
from lsp_server.usage.acceptance import Acceptances
from lsp_server.usage.statistics import Statistics
from protocol.settings import Settings

HERE = Position(0, 4)


class Counted:
    def __init__(self) -> None:
        self.total = Statistics()

    def count(self, more: Statistics) -> None:
        self.total += more

    @property
    def outcomes(self) -> tuple[int, int, int, int, int]:
        total = self.total
        return total.shown, total.accepted, total.accepted_partly, total.typed, total.rejected


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def acceptances(counted: Counted) -> Acceptances:
    return Acceptances(counted.count, watch_s=0.01)


@pytest.fixture
def document() -> OpenDocument:
    return OpenDocuments(Settings()).open("file:///a", "python", 1, "x = ")


def answer(acceptances: Acceptances, document: OpenDocument, cursor: Position, *texts: str) -> int:
    return acceptances.answered(document, cursor, tuple(map(Insertion, texts)), 3.0)


def insert(document: OpenDocument, cursor: Position, text: str) -> None:
    document.apply(Edit(cursor, cursor, text))


async def test_accepted_whole_and_half_of_it_kept(
    acceptances: Acceptances, counted: Counted, document: OpenDocument
) -> None:
    number = answer(acceptances, document, HERE, "1234 678")
    insert(document, HERE, "1234 678")
    assert acceptances.accepted(number, 0) == (document, Position(0, 12))
    insert(document, Position(0, 0), "# moved\n")
    document.apply(Edit(Position(1, 8), Position(1, 12), ""))
    await asyncio.sleep(0.05)
    assert counted.outcomes == (1, 1, 0, 0, 0)
    assert (counted.total.accepted_characters, counted.total.kept_share) == (8, 0.5)
    assert document.watched == {}


async def test_accepted_before_the_edit_is_told(
    acceptances: Acceptances, counted: Counted, document: OpenDocument
) -> None:
    number = answer(acceptances, document, HERE, "one", "two")
    assert acceptances.accepted(number, 1) is None
    insert(document, HERE, "two")
    await asyncio.sleep(0.05)
    assert counted.total.kept_share == 1.0


def test_going_on_with_a_suggestion_is_not_another_one(
    acceptances: Acceptances, counted: Counted, document: OpenDocument
) -> None:
    answer(acceptances, document, HERE, "value")
    insert(document, HERE, "val")
    answer(acceptances, document, Position(0, 7), "ue")
    assert counted.outcomes == (1, 0, 0, 0, 0)
    answer(acceptances, document, Position(0, 7), "other")
    assert counted.outcomes == (2, 0, 0, 1, 0)
    acceptances.ended("file:///a")
    assert counted.outcomes == (2, 0, 0, 1, 1)
    acceptances.ended("file:///a")
    assert counted.outcomes == (2, 0, 0, 1, 1)
    assert sum(counted.total.answers) == 3


def test_by_words(acceptances: Acceptances, counted: Counted, document: OpenDocument) -> None:
    number = answer(acceptances, document, HERE, "one two three")
    acceptances.accepted_partly(number, 4)
    insert(document, HERE, "one ")
    number = answer(acceptances, document, Position(0, 8), "two three")
    acceptances.accepted_partly(number, 4)
    acceptances.ended("file:///a")
    assert counted.outcomes == (1, 0, 1, 0, 0)
    assert counted.total.accepted_characters == 8


def test_clients_that_tell_what_they_show(acceptances: Acceptances, counted: Counted, document: OpenDocument) -> None:
    acceptances.shown(answer(acceptances, document, HERE, "a"))
    answer(acceptances, document, HERE, "b")  # never shown
    assert counted.outcomes == (1, 0, 0, 0, 1)


async def test_what_nobody_was_answered_is_not_counted(acceptances: Acceptances, counted: Counted) -> None:
    acceptances.shown(99)
    acceptances.accepted_partly(99, 1)
    assert acceptances.accepted(99, 0) is None
    assert replace(counted.total) == Statistics()
