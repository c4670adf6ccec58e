"""Where prompts are prepared: in documents with signs of typing, on mains power."""

from __future__ import annotations

import asyncio

import pytest

from lsp_server.core_client.link import LinkStatus
from lsp_server.documents.documents import Edit, Position
from lsp_server.suggesting import editing_session, requests
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import EditorWorkspace, OpenDocument, OpenDocuments
from lsp_server.suggesting.requests import Preparing
from protocol.settings import PrepareAhead, Settings
from tests.lsp_server.suggesting.test_editing_session import StubCore, until_rest

START, LINES = Position(0, 0), 10_600


class Desk:
    """Documents a, b and c, and a clock."""

    def __init__(self, **settings: str) -> None:
        self.documents = OpenDocuments(Settings(**settings))  # type: ignore[arg-type]
        self.a, self.b, self.c = (self.documents.open(f"file:///{name}", "python", 1, "x\n") for name in "abc")
        self.now = 1000.0
        self.is_on_battery = False
        self.asked_power = 0
        self.preparing = Preparing(self.documents, self._power, lambda: self.now)

    def _power(self) -> bool:
        self.asked_power += 1
        return self.is_on_battery

    def type(self, opened: OpenDocument) -> None:
        opened.apply(Edit(START, START, "y"))
        opened.edited_at = self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def allowed(self, *documents: OpenDocument) -> list[bool]:
        return [self.preparing.allows(opened) for opened in documents]


def test_a_document_is_prepared_while_it_is_edited() -> None:
    desk = Desk()
    assert desk.allowed(desk.a, desk.b) == [False, False]
    desk.type(desk.a)
    for seconds in (0, 100, 199):
        desk.wait(seconds)
        assert desk.allowed(desk.a) == [True]
    desk.wait(2)
    assert desk.allowed(desk.a) == [False]
    desk.type(desk.a)
    assert desk.allowed(desk.a) == [True]


def test_of_the_others_the_one_that_is_viewed_first_after_an_edit_is_prepared_once() -> None:
    desk = Desk()
    desk.type(desk.a)
    desk.wait(5)
    assert desk.allowed(desk.b, desk.b) == [True, True]  # its focus, then its cursor
    assert desk.allowed(desk.c, desk.a) == [False, True]
    desk.wait(2)
    assert desk.allowed(desk.b) == [False]
    desk.type(desk.a)
    assert desk.allowed(desk.c) == [True]
    desk.wait(301)
    assert desk.allowed(desk.a, desk.b, desk.c) == [False, False, False]


def test_cells_of_one_notebook_count_as_one_document() -> None:
    desk = Desk()
    desk.documents.splice_cells("nb.ipynb", 0, 0, ["file:///a", "file:///b"])
    desk.type(desk.a)
    for _ in range(3):
        desk.wait(5)
        assert desk.allowed(desk.b) == [True]


@pytest.mark.parametrize("wanted", ["always", "never"])
def test_the_setting_decides_without_looking(wanted: PrepareAhead) -> None:
    desk = Desk(prepare_ahead=wanted)
    desk.is_on_battery = True
    desk.preparing.rest()
    assert desk.allowed(desk.a) == [wanted == "always"]
    desk.type(desk.a)
    assert desk.allowed(desk.a) == [wanted == "always"]
    assert desk.asked_power == 0


def test_nothing_is_prepared_on_battery_which_is_asked_at_rest_and_seldom() -> None:
    desk = Desk()
    desk.type(desk.a)
    desk.is_on_battery = True
    assert desk.allowed(desk.a) == [True]
    for _ in range(50):
        desk.preparing.rest()
        desk.wait(1)
        assert desk.allowed(desk.a) == [False]
    assert desk.asked_power == 1
    desk.is_on_battery = False
    desk.wait(20)
    desk.preparing.rest()
    assert (desk.allowed(desk.a), desk.asked_power) == ([True], 2)


def test_a_core_on_another_machine_does_not_use_this_battery() -> None:
    desk = Desk(core="wss://elsewhere:1", core_token="t")
    desk.is_on_battery = True
    desk.preparing.rest()
    desk.type(desk.a)
    assert desk.allowed(desk.a) == [True]


@pytest.fixture
def core() -> StubCore:
    return StubCore()


@pytest.fixture
def session(core: StubCore, monkeypatch: pytest.MonkeyPatch) -> EditingSession:
    for name in ("_IDLE_SECONDS", "_OPENING_SECONDS"):
        monkeypatch.setattr(editing_session, name, 0.001)
    monkeypatch.setattr(requests, "runs_on_battery", lambda: False)
    return EditingSession(core, Settings(), "me", lambda _: None)


async def click(session: EditingSession, document: OpenDocument, times: int) -> None:
    """Move the cursor from place to place, with a rest at each."""
    for number in range(times):
        session.prefetch(document, Position(number * (LINES // times), 0))
        await asyncio.sleep(0.01)
        await until_rest(document)


async def test_clicks_without_an_edit_send_nothing_to_the_core(
    core: StubCore, session: EditingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[Position] = []

    async def note(_: EditorWorkspace, document: object, cursor: Position, settings: Settings) -> None:
        gathered.append(cursor)

    monkeypatch.setattr(EditorWorkspace, "gather", note)
    session.core_changed(LinkStatus("starting"))
    document = session.open("file:///a", "python", 1, "value = compute(1)\n" * LINES)
    await asyncio.sleep(0.01)
    session.prefetch(document)  # as on focus
    session.core_changed(LinkStatus("unloaded"))
    await click(session, document, 20)
    assert core.requests == []
    assert {cursor.line for cursor in gathered} >= {530, 10_070}  # so that the first key finds snippets
    document.apply(Edit(START, START, "x"))
    await click(session, document, 20)
    assert [request.max_tokens for request in core.requests] == [0] * 20
    document.edited_at -= 301
    core.requests.clear()
    await click(session, document, 20)
    assert core.requests == []


async def test_typing_asks_whatever_is_prepared(core: StubCore, session: EditingSession) -> None:
    """A client without inline completions asks for its popup, and does not wait for a core that loads its model."""
    session.documents.configure(Settings(prepare_ahead="never"))
    document, core.ready = session.open("file:///a", "python", 1, "x"), False
    await session.suggest(document, editing_session.Query(Position(0, 1)), waits_for_core=False)
    await until_rest(document)
    assert [request.max_tokens for request in core.requests] == [0]
