"""The editor without a screen, against a scripted language server in a process of its own."""

import asyncio
import hashlib
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lsp_server.documents.documents import Edit, Position
from lsp_server.documents.positions import PositionEncoding
from midfill.headless.lsp_process import LanguageServerFailed, LspProcess
from midfill.headless.lsp_session import LspSession, open_session
from protocol.errors import BadInput, Cancelled

URI = "file:///sample.py"
SERVER = [sys.executable, str(Path(__file__).parents[1] / "scripted_server.py")]


@asynccontextmanager
async def session_with(text: str, encoding: PositionEncoding = PositionEncoding.UTF16) -> AsyncIterator[LspSession]:
    async with open_session(SERVER, encoding=encoding) as session:
        session.open(URI, "python", text)
        yield session


@pytest.mark.parametrize("encoding", PositionEncoding)
async def test_positions_and_edits_in_every_encoding(encoding: PositionEncoding) -> None:
    async with session_with('x = "😋é"\nend\n', encoding) as session:
        session.change(URI, [Edit(Position(0, 6), Position(0, 7), "𝔘ñ\n"), Edit(Position(1, 1), Position(1, 1), "!")])
        text = session.documents[URI].text
        assert text == 'x = "😋𝔘ñ\n"!\nend\n'
        assert await session.document_hash(URI) == hashlib.sha256(text.encode()).hexdigest()

        answer = await session.suggest(URI, Position(0, 7))

        (suggestion,) = answer.suggestions
        assert suggestion.text == '<x = "😋𝔘>'
        assert (suggestion.start, suggestion.end) == (Position(0, 7), Position(0, 8))


async def test_an_answer_carries_its_cost() -> None:
    async with session_with("a\n") as session:
        answer = await session.suggest(URI, Position(0, 1))
    assert answer.cost is not None
    assert (answer.cost.usage.recomputed_tokens, answer.cost.cache_outcome, answer.cost.is_prefetch) == (2, "hit", False)
    assert answer.cost.milliseconds == 2.5
    assert answer.milliseconds > 0


async def test_a_request_is_timed_from_before_it_is_written() -> None:
    """The server may be done with it before the operating system lets the writer go on."""

    class SlowPipe:
        written = 0.0

        def write(self, _data: bytes) -> None:
            self.written = time.perf_counter()
            time.sleep(0.02)

        def close(self) -> None:
            pass

    process = LspProcess()
    await process.launch(SERVER)
    try:
        assert process.protocol.writer is not None
        writer, pipe = process.protocol.writer, SlowPipe()
        process.protocol.set_writer(pipe)
        asked = process.begin("midfill/documentHash", {})
        process.protocol.set_writer(writer)
        assert asked.sent <= pipe.written
    finally:
        await process.end()


async def test_each_answer_has_its_own_cost() -> None:
    async with session_with("a\nb\n") as session:
        for cursor in (Position(0, 1), Position(1, 1)):
            abandoned = session.begin_suggest(URI, cursor)
            await session.receive(abandoned._request)
        await session.document_hash(URI)  # their costs have come, and are not asked for
        answer = await session.suggest(URI, Position(0, 1))
        assert answer.cost is not None
        assert answer.cost.milliseconds == 4.5, "the third"
        session.change(URI, [Edit(Position(1, 1), Position(1, 1), "!")])
        assert (await session.suggest(URI, Position(1, 2))).cost is not None
        assert session._costs == {}


async def test_an_edit_while_the_cost_is_waited_for_moves_no_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session_with("a\nb\n") as session:

        async def meanwhile(*_: object) -> None:
            session.change(URI, [Edit(Position(0, 0), Position(1, 0), "")])

        monkeypatch.setattr(session, "take_cost", meanwhile)
        (suggestion,) = (await session.suggest(URI, Position(1, 1))).suggestions
        assert suggestion.start == Position(1, 1)


async def test_a_move_is_told_and_its_cost_heard() -> None:
    async with session_with("a\nb\n") as session:
        session.move_cursor(URI, Position(1, 0))
        cost = await session.wait_for_prefetch(timeout_s=100)
        assert cost is not None
        assert cost.is_prefetch
        assert await session.wait_for_prefetch(timeout_s=0.05) is None


async def test_a_cancelled_request_raises_cancelled() -> None:
    async with session_with("slow\n") as session:
        pending = session.begin_suggest(URI, Position(0, 4))
        pending.cancel()
        with pytest.raises(Cancelled):
            await pending.wait()


async def test_an_answer_that_nobody_waits_for_any_more_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async with session_with("later\n") as session:
        pending = session.begin_suggest(URI, Position(0, 5))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pending.wait(), timeout=0.01)
        await asyncio.sleep(0.5)
        assert (await session.suggest(URI, Position(0, 1))).suggestions
    assert caplog.text == ""


async def test_an_answer_to_an_older_text_has_no_suggestions() -> None:
    async with session_with("later\n") as session:
        pending = session.begin_suggest(URI, Position(0, 5))
        session.change(URI, [Edit(Position(0, 5), Position(0, 5), "!")])
        answer = await pending.wait()
    assert answer.suggestions == ()
    assert answer.cost is None


async def test_a_refused_request_says_why_and_the_session_goes_on() -> None:
    async with session_with("refuse\n") as session:
        with pytest.raises(BadInput, match="column 9"):  # beyond the document, so it is not sent
            await session.suggest(URI, Position(0, 9))
        with pytest.raises(LanguageServerFailed, match="refused as asked"):
            await session.suggest(URI, Position(0, 6))
        assert (await session.suggest(URI, Position(0, 2))).suggestions


async def test_a_server_that_dies_is_an_error_with_its_last_words() -> None:
    async with session_with("die\n") as session:
        with pytest.raises(LanguageServerFailed, match=r"return code: 3(.|\n)*a last word"):
            await session.suggest(URI, Position(0, 3))
        with pytest.raises(LanguageServerFailed, match="not running"):
            await session.suggest(URI, Position(0, 0))


async def test_waiting_for_the_model() -> None:
    async with session_with("a\n") as session:
        await session.wait_until_ready(silence_s=10)
        assert session.status is not None
        assert (session.status.state, session.status.model) == ("ready", "m")


async def test_a_model_that_never_comes_or_fails_is_an_error() -> None:
    async with open_session(SERVER) as session:
        with pytest.raises(LanguageServerFailed, match="loading"):
            await session.wait_until_ready(silence_s=1.0)
        session.open(URI, "python", "broken\n")
        with pytest.raises(LanguageServerFailed, match="weights are broken"):
            await session.wait_until_ready(silence_s=10)


async def test_no_such_program() -> None:
    with pytest.raises(LanguageServerFailed, match="cannot start /no/such/program"):
        async with open_session(["/no/such/program"]):
            pytest.fail("it started")
