"""From cursor to suggestion: what the core is asked, and what comes of its answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from lsp_server.context.proposals import TextProposal
from lsp_server.core_client.link import LinkStatus
from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.filters.cursor_context import Insertion
from lsp_server.filters.likely import LEAST_PROBABILITY
from lsp_server.suggesting import editing_session, requests
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import EditorWorkspace, OpenDocument
from lsp_server.suggesting.queries import Query, Selected
from lsp_server.suggesting.requests import PromptCost
from protocol.errors import BadInput, CoreUnavailable, MidfillError
from protocol.messages import Alternative, Completion, CompletionRequest, StopRule, TokenLogprob
from protocol.settings import Settings
from tests.lsp_server.editor import PATIENCE_S, until
from tests.lsp_server.fake_core import completion


class StubCore:
    def __init__(self) -> None:
        self.ready = True
        self.chars_per_token = 4.0
        self.requests: list[CompletionRequest] = []
        self.forgotten: list[str] = []
        self.released: list[str] = []
        self.give(completion("1"))

    def give(self, result: Completion | MidfillError) -> None:
        """Answer every request with this."""

        async def answer() -> Completion:
            if isinstance(result, MidfillError):
                raise result
            return result

        self.answer: Callable[[], Awaitable[Completion]] = answer

    async def complete(self, request: CompletionRequest) -> Completion:
        self.requests.append(request)
        return await self.answer()

    def forget(self, session: str) -> None:
        self.forgotten.append(session)

    def release(self, session: str) -> None:
        self.released.append(session)


@pytest.fixture
def core() -> StubCore:
    return StubCore()


@pytest.fixture
def costs() -> list[PromptCost]:
    return []


@pytest.fixture
def session(core: StubCore, costs: list[PromptCost]) -> EditingSession:
    return EditingSession(core, Settings(), "me", costs.append)


@pytest.fixture
def hasty(session: EditingSession, monkeypatch: pytest.MonkeyPatch) -> EditingSession:
    """Takes any moment for a rest, and waits for no core."""
    for name in ("_IDLE_SECONDS", "_OPENING_SECONDS", "_LOADING_SECONDS"):
        monkeypatch.setattr(editing_session, name, 0.01)
    return session


def opened(session: EditingSession, text: str, language: str = "python") -> OpenDocument:
    return session.documents.open("file:///a", language, 1, text)


async def allowed(session: EditingSession, text: str) -> OpenDocument:
    """An open document that is not excluded, as looked up just now."""
    document = opened(session, text)
    await document.workspace.verdicts.look([document.document.uri])
    return document


async def until_rest(document: OpenDocument) -> None:
    """Wait until nothing is computed for the document any more."""
    async with asyncio.timeout(PATIENCE_S):
        while document.latest.busy:
            await asyncio.sleep(0.001)


def looked_at(document: OpenDocument) -> OpenDocument:
    document.look_at(document.cursor)
    return document


def propose(lent: OpenDocument, to: OpenDocument) -> None:
    """Let a source propose the text of one document for prompts of the other."""
    to.workspace.pool.expect(to.session)
    proposal = TextProposal(lent.document.uri, "similar", 1.0, 0, tuple(lent.document.lines))
    to.workspace.pool.gathered(to.session, [proposal], ())


def viewed(document: OpenDocument) -> list[str]:
    """The documents that the user has looked at, the last one first."""
    return [each.document.uri for each in document.workspace.pool.documents]


async def test_the_request_says_where_and_how(core: StubCore, session: EditingSession) -> None:
    session.documents.configure(Settings(max_tokens=9, strategy="none", prepare_ahead="always"))
    document = opened(session, "def f():\n    ")
    assert await session.suggest(document, Query(Position(1, 4))) == (Insertion("1"),)
    session.prefetch(document, Position(0, 0))
    await until_rest(document)
    request, prefetch = core.requests
    assert (request.session, request.max_tokens, request.reuse, request.alternatives) == ("me/file:///a", 9, False, 0)
    assert (prefetch.session, prefetch.max_tokens, prefetch.reuse) == ("me/file:///a", 0, False)
    quotes = ('"""', "'''")
    assert request.stop == StopRule(indent=4, closers=(")", "]", "}", "</", "/>"), quotes=quotes, tab_columns=8)


async def test_what_a_short_prompt_suggested_stays_while_it_is_typed_and_the_whole_prompt_is_computed(
    core: StubCore, session: EditingSession
) -> None:
    core.give(replace(completion("size_of(path)"), is_short=True))
    document = opened(session, "x = \n")
    assert await session.suggest(document, Query(Position(0, 4))) == (Insertion("size_of(path)"),)
    core.give(completion("another"))
    for column, (key, rest) in enumerate((("s", "ize_of(path)"), ("i", "ze_of(path)")), start=4):
        document.apply(Edit(Position(0, column), Position(0, column), key))
        assert await session.suggest(document, Query(Position(0, column + 1))) == (Insertion(rest),)
        await until_rest(document)
    assert [(request.prompt.increment, request.max_tokens) for request in core.requests[1:]] == [("x = s", 0)]


@pytest.mark.parametrize("end", ["closed", "snoozed"])
async def test_after_a_short_prompt_nothing_is_computed_where_nothing_is_suggested(
    core: StubCore, session: EditingSession, end: str
) -> None:
    document = opened(session, "x = \n")
    document.lacks_prompt = True
    session.snooze(math.inf) if end == "snoozed" else session.close(document.document.uri)
    assert await session.suggest(document, Query(Position(0, 4))) == ()
    await until_rest(document)
    assert core.requests == []


async def test_the_rules_are_looked_at_while_the_core_is_at_work(
    core: StubCore, session: EditingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    async def answer_later() -> Completion:
        await asyncio.sleep(0.05)
        happened.append("answered")
        return completion("1")

    document = await allowed(session, "x = ()\n")
    monkeypatch.setattr(document.workspace.verdicts, "renew", lambda uris, _: happened.extend(uris))
    core.answer = answer_later
    assert await session.suggest(document, Query(Position(0, 5))) == (Insertion("1"),)
    assert happened == ["file:///a", "answered"]


async def test_what_the_prompt_hides_is_what_the_filters_take_back(core: StubCore, session: EditingSession) -> None:
    core.give(completion("it's)"))
    document = opened(session, "# see (\n", "made-up")
    document.apply(Edit(Position(0, 7), Position(0, 7), ")"))
    assert await session.suggest(document, Query(Position(0, 7))) == (Insertion("it's"),)
    assert core.requests[-1].prompt.suffix == "\n"


async def test_the_cost_counts_what_was_inserted_since_the_last_answer(
    core: StubCore, session: EditingSession, costs: list[PromptCost]
) -> None:
    core.give(completion("1", prompt_tokens=100, recomputed_tokens=5))
    document = opened(session, "x")
    document.inserted_chars = 8
    await session.suggest(document, Query(Position(0, 1)))
    await session.suggest(document, Query(Position(0, 0)))
    assert [cost.cache_outcome for cost in costs] == ["hit", "partial"]


@pytest.mark.parametrize(
    ("answer", "costs_counted"),
    [
        (CoreUnavailable("gone"), 0),
        (BadInput("too long"), 0),
        (Completion("half", "cancelled", completion("").usage), 0),
        (completion("  \n"), 1),
    ],
)
async def test_errors_and_answers_that_say_nothing_mean_no_suggestion(
    core: StubCore, session: EditingSession, costs: list[PromptCost], answer: Completion | MidfillError, costs_counted: int
) -> None:
    session.documents.configure(Settings(prepare_ahead="always"))
    core.give(answer)
    document = opened(session, "x")
    assert await session.suggest(document, Query(Position(0, 1))) == ()
    assert len(costs) == costs_counted
    is_gone = isinstance(answer, CoreUnavailable)
    assert document.unanswered == ((0, Position(0, 1)) if is_gone else None)  # the client asks again once there is a core
    document.unanswered = None
    session.prefetch(document, Position(0, 0))
    await until_rest(document)
    assert document.unanswered is None  # for which nobody waits


async def test_debounce_asks_only_after_a_rest(core: StubCore, session: EditingSession) -> None:
    session.documents.configure(Settings(debounce_ms=20))
    document = opened(session, "xy")
    first = asyncio.create_task(session.suggest(document, Query(Position(0, 1))))
    await asyncio.sleep(0)
    assert await session.suggest(document, Query(Position(0, 2))) == (Insertion("1"),)
    assert await first == ()
    assert len(core.requests) == 1


async def test_a_core_that_comes_up_prepares_for_the_last_document(core: StubCore, session: EditingSession) -> None:
    core.ready = False
    document = opened(session, "x")
    document.apply(Edit(Position(0, 0), Position(0, 0), "y"))
    session.prefetch(document, Position(0, 1))
    session.core_changed(LinkStatus("starting"))
    await until_rest(document)
    core.requests.clear()
    session.core_changed(LinkStatus("unloaded"))
    await until_rest(document)
    assert [request.max_tokens for request in core.requests] == [0]
    session.core_changed(LinkStatus("ready"))
    session.core_changed(LinkStatus("unloaded"))  # idle: it stays so until the user types
    await until_rest(document)
    assert len(core.requests) == 1


async def test_a_closed_document_is_not_prepared(core: StubCore, session: EditingSession) -> None:
    document = opened(session, "x")
    document.apply(Edit(Position(0, 0), Position(0, 0), "y"))
    session.prefetch(document)
    await until_rest(document)
    session.close("file:///a")
    assert (core.released, core.forgotten) == (["me/file:///a"], [])
    session.core_changed(LinkStatus("starting"))
    session.core_changed(LinkStatus("ready"))
    await until_rest(document)
    assert len(core.requests) == 1


async def test_no_prefetch_in_disabled_languages(core: StubCore, session: EditingSession) -> None:
    session.documents.configure(Settings(disabled_languages=("markdown",), prepare_ahead="always"))
    document = opened(session, "x", "markdown")
    session.prefetch(document)
    await until_rest(document)
    assert core.requests == []


async def test_at_rest_a_long_increment_is_laid_anew_by_a_prefetch(core: StubCore, hasty: EditingSession) -> None:
    document = opened(hasty, "")
    await hasty.suggest(document, Query(Position(0, 0)))
    document.apply(Edit(Position(0, 0), Position(0, 0), "long line\n" * 120))
    await hasty.suggest(document, Query(Position(120, 0)))
    await until(lambda: len(core.requests) == 3)
    short, long, prefetch = core.requests
    assert long.prompt.prefix == short.prompt.prefix == ""
    assert prefetch.max_tokens == 0
    assert prefetch.prompt.prefix + prefetch.prompt.increment == long.prompt.increment
    assert len(prefetch.prompt.increment) < len(long.prompt.increment)


async def test_at_rest_the_sources_gather_for_the_place_before_the_anchor_is_laid(
    core: StubCore, hasty: EditingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[tuple[Position, int]] = []
    gather = EditorWorkspace.gather

    async def note(self: EditorWorkspace, document: Document, cursor: Position, settings: Settings) -> None:
        gathered.append((cursor, len(core.requests)))
        await gather(self, document, cursor, settings)

    monkeypatch.setattr(EditorWorkspace, "gather", note)
    document = opened(hasty, "")
    await hasty.suggest(document, Query(Position(0, 0)))
    document.apply(Edit(Position(0, 0), Position(0, 0), "long line\n" * 120))
    await hasty.suggest(document, Query(Position(120, 0)))
    await until(lambda: len(core.requests) == 3)
    assert gathered[-1] == (Position(120, 0), 2)


async def test_at_rest_nothing_is_computed_for_a_closed_document(core: StubCore, hasty: EditingSession) -> None:
    document = opened(hasty, "")
    await hasty.suggest(document, Query(Position(0, 0)))
    document.apply(Edit(Position(0, 0), Position(0, 0), "long line\n" * 120))
    hasty.prefetch(document, Position(120, 0))
    hasty.close("file:///a")
    core.requests.clear()
    await asyncio.sleep(0.05)
    assert core.requests == []


async def test_at_rest_nothing_is_computed_that_is_resident(core: StubCore, hasty: EditingSession) -> None:
    await hasty.suggest(opened(hasty, "x = "), Query(Position(0, 4)))
    await asyncio.sleep(0.1)
    assert len(core.requests) == 1


async def test_other_files_stand_before_the_prefix_unless_that_is_off(core: StubCore, session: EditingSession) -> None:
    for settings, paths in ((Settings(), ["lib.py"]), (Settings(other_files=False), [])):
        core.requests.clear()
        session.documents.configure(settings)
        session.documents.use_folders(["file:///work"])
        lib = session.documents.open("file:///work/lib.py", "python", 1, "def helper(a, b):\n    return a + b\n")
        main = session.documents.open("file:///work/main.py", "python", 1, "x = ")
        propose(looked_at(lib), main)
        await session.suggest(main, Query(Position(0, 4)))
        assert [chunk.path for chunk in core.requests[0].prompt.context] == paths


async def test_secrets_enter_no_prompt(core: StubCore, session: EditingSession) -> None:
    session.documents.use_folders(["file:///work"])
    secret = session.documents.open("file:///work/.env", "dotenv", 1, "KEY=1\n")
    main = session.documents.open("file:///work/main.py", "python", 1, "x = ")
    assert await session.suggest(secret, Query(Position(1, 0))) == ()
    await session.suggest(main, Query(Position(0, 4)))
    assert [request.prompt.context for request in core.requests] == [()]


class Lending:
    """main.py is completed with a chunk of lib.py before it, and other.py with nothing, in a folder on the disk."""

    def __init__(self, core: StubCore, session: EditingSession, folder: Path) -> None:
        self.core, self.session, self.folder = core, session, folder
        self.refresh()
        self.other = self.open("other.py", "y = ")
        self.lib = self.open("lib.py", "def helper():\n    return 1\n")
        self.main = self.open("main.py", "x = ")
        propose(self.lib, self.main)

    def open(self, name: str, text: str) -> OpenDocument:
        return looked_at(self.session.documents.open((self.folder / name).as_uri(), "python", 1, text))

    def refresh(self) -> None:
        """Look at the ignore files now, rather than after a while."""
        self.session.documents.use_folders([self.folder.as_uri()])

    def exclude(self, line: str) -> None:
        (self.folder / ".midfillignore").write_text(f"{line}\n")
        self.refresh()

    async def complete_main(self) -> list[str]:
        """The files whose text stands before main.py's prompt."""
        await self.session.suggest(self.main, Query(Position(0, 4)))
        return [chunk.path for chunk in self.core.requests[-1].prompt.context]

    @property
    def forgotten(self) -> set[str]:
        return {session.rpartition("/")[2] for session in self.core.forgotten}


@pytest.fixture
def lending(core: StubCore, session: EditingSession, tmp_path: Path) -> Lending:
    return Lending(core, session, tmp_path)


@pytest.mark.parametrize("asked_for", [False, True])
async def test_a_document_that_becomes_excluded_is_purged_from_every_session(lending: Lending, asked_for: bool) -> None:
    """Also one that only lent its text."""
    if asked_for:
        await lending.session.suggest(lending.lib, Query(Position(2, 0)))
    assert "lib.py" in await lending.complete_main()
    lending.exclude("lib.py")
    assert "lib.py" not in await lending.complete_main()
    assert lending.forgotten == {"lib.py", "main.py"}
    assert await lending.session.suggest(lending.lib, Query(Position(2, 0))) == ()


@pytest.mark.parametrize("asked_for", [False, True])
async def test_a_closed_document_that_becomes_excluded_is_purged(
    lending: Lending, asked_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the next request of a document whose prompts held its text: this one does not wait for its turn."""
    monkeypatch.setattr(requests, "_LOOKED_AT_IN_TURN", 0)
    if asked_for:
        await lending.session.suggest(lending.lib, Query(Position(2, 0)))
    await lending.complete_main()
    lending.session.close(lending.lib.document.uri)
    assert lending.core.forgotten == []  # what was computed may be of use when it is opened again
    lending.exclude("lib.py")
    await lending.complete_main()
    assert lending.forgotten == {"lib.py", "main.py"}
    lending.core.forgotten.clear()
    await lending.complete_main()
    assert lending.forgotten == set()  # once is enough


async def test_an_answer_that_comes_behind_the_exclusion_is_not_kept(lending: Lending) -> None:
    released = asyncio.Event()

    async def late() -> Completion:
        await released.wait()
        return completion("1")

    lending.core.answer = late
    asking = asyncio.create_task(lending.session.suggest(lending.lib, Query(Position(2, 0))))
    while not lending.core.requests:
        await asyncio.sleep(0.001)
    lending.exclude("lib.py")
    await lending.lib.workspace.verdicts.look([lending.lib.document.uri])
    released.set()
    assert await asking == ()
    assert (lending.lib.suggestions, lending.lib.last_exchange) == ((), None)


async def test_used_documents_are_looked_at_in_turn_and_with_a_cell_goes_its_notebook(
    lending: Lending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_LOOKED_AT_IN_TURN", 1)
    documents, cell = lending.session.documents, lending.lib
    documents.splice_cells((lending.folder / "notebook").as_uri(), 0, 0, [cell.document.uri])
    for document in (lending.other, cell):
        await lending.session.suggest(document, Query(Position(0, 4)))
    lending.exclude("lib.py")
    new = lending.open("new.py", "z = ")
    for _ in range(2):
        lending.refresh()
        await lending.session.suggest(new, Query(Position(0, 4), invoked=True))
    assert lending.forgotten == {"lib.py", "notebook#python", "other.py", "new.py"}
    assert (cell.suggestions, cell.last_exchange) == ((), None)


async def test_opening_what_was_never_used_drops_nothing_else(lending: Lending) -> None:
    await lending.complete_main()
    await lending.session.suggest(lending.open(".env", "KEY=1\n"), Query(Position(0, 3)))
    assert lending.forgotten == {".env"}  # of which an earlier run may have left something


def answering(core: StubCore, text: str, *alternatives: str, mean_logprob: float | None = None) -> None:
    others = tuple(Alternative(other, "stop") for other in alternatives)
    core.give(replace(completion(text), alternatives=others, mean_logprob=mean_logprob))


async def test_what_is_unlikely_is_held_back_until_it_is_typed(core: StubCore, session: EditingSession) -> None:
    answering(core, "value or 0", mean_logprob=-3.0)
    document = opened(session, "x = ")
    assert await session.suggest(document, Query(Position(0, 4))) == ()
    document.apply(Edit(Position(0, 4), Position(0, 4), "v"))
    assert await session.suggest(document, Query(Position(0, 5))) == (Insertion("alue or 0"),)
    assert len(core.requests) == 1


@pytest.mark.parametrize(
    ("text", "probability", "shown"),
    [("value", 0.5, False), ("value", 0.7, True), ("self.value", 0.05, False), ("self.value", 0.2, True)],
)
async def test_a_few_characters_interrupt_only_if_they_are_likely(
    core: StubCore, session: EditingSession, text: str, probability: float, *, shown: bool
) -> None:
    tokens = (TokenLogprob(text, math.log(probability)),)
    core.give(replace(completion(text), mean_logprob=math.log(max(0.3, probability)), tokens=tokens))
    document = opened(session, "x = ")
    expected = (Insertion(text),)
    session.documents.configure(Settings(hold_back_percent=1))
    assert await session.suggest(document, Query(Position(0, 4))) == (expected if shown else ())
    reason = session.explainer.reason(document)
    assert (reason is None) if shown else (reason is not None and reason.text == "unsure")
    assert await session.suggest(document, Query(Position(0, 4), invoked=True)) == expected


@pytest.mark.parametrize(
    ("settings", "query", "logprob"),
    [
        (Settings(), Query(Position(0, 4), invoked=True), -3.0),
        (Settings(hold_back_percent=0), Query(Position(0, 4)), -3.0),
        (Settings(), Query(Position(0, 4)), -0.5),
    ],
)
async def test_what_is_never_held_back(
    core: StubCore, session: EditingSession, settings: Settings, query: Query, logprob: float
) -> None:
    answering(core, "value", mean_logprob=logprob)
    session.documents.configure(settings)
    assert await session.suggest(opened(session, "x = "), query) == (Insertion("value"),)


async def test_what_is_likely_to_go_wrong_is_shown_by_hand_alone(core: StubCore, session: EditingSession) -> None:
    tokens = (TokenLogprob("value", -0.1), TokenLogprob(" or", -2.5), TokenLogprob(" None", -0.1))
    core.give(replace(completion("value or None"), mean_logprob=-2.7 / 3, tokens=tokens))
    document = opened(session, "x = ")
    assert await session.suggest(document, Query(Position(0, 4))) == (Insertion("value"),)
    assert await session.suggest(document, Query(Position(0, 4), invoked=True)) == (Insertion("value or None"),)
    session.documents.configure(Settings(shorten_unlikely=False))
    document = opened(session, "y = ")
    assert await session.suggest(document, Query(Position(0, 4))) == (Insertion("value or None"),)
    assert all(request.token_logprobs for request in core.requests)
    assert [request.min_probability for request in core.requests] == [LEAST_PROBABILITY, 0.0, 0.0]


async def test_only_what_is_left_after_shortening_counts_as_unlikely(core: StubCore, session: EditingSession) -> None:
    tokens = (TokenLogprob("value", -0.1), TokenLogprob(" or", -8.0))
    core.give(replace(completion("value or"), mean_logprob=-4.05, tokens=tokens))
    assert await session.suggest(opened(session, "x = "), Query(Position(0, 4))) == (Insertion("value"),)


async def test_a_line_that_the_token_limit_cut_is_dropped_from_every_text(core: StubCore, session: EditingSession) -> None:
    cut, whole = Alternative("if a:\n    b\n    cc", "length"), Alternative("if d:\n    e\n    ff", "eos")
    core.give(replace(completion("x = 1\nreturn x.som"), finish_reason="length", alternatives=(cut, whole)))
    suggested = await session.suggest(opened(session, ""), Query(Position(0, 0), invoked=True))
    assert [insertion.text for insertion in suggested] == ["x = 1", "if a:\n    b", whole.text]


async def test_by_hand_there_is_a_choice_and_each_can_be_typed(core: StubCore, session: EditingSession) -> None:
    answering(core, "one", "two", "one ", "   ", "three")
    document = opened(session, "x = ")
    by_hand = Query(Position(0, 4), invoked=True)
    assert await session.suggest(document, by_hand) == (Insertion("one"), Insertion("two"), Insertion("three"))
    assert core.requests[0].alternatives == 2
    assert await session.suggest(document, by_hand) == (Insertion("one"), Insertion("two"), Insertion("three"))
    document.apply(Edit(Position(0, 4), Position(0, 4), "t"))
    assert await session.suggest(document, Query(Position(0, 5))) == (Insertion("wo"),)
    assert await session.suggest(document, Query(Position(0, 5), invoked=True)) == (Insertion("wo"), Insertion("hree"))
    assert len(core.requests) == 1


async def test_goes_on_from_the_selected_entry_of_the_popup(core: StubCore, session: EditingSession) -> None:
    answering(core, "(1)")
    document = opened(session, "x.ap")
    append = Selected(2, 4, "append")
    assert await session.suggest(document, Query(Position(0, 4), selected=append)) == (Insertion("append(1)", taken=2),)
    assert core.requests[0].prompt.increment == "x.append"
    document.apply(Edit(Position(0, 4), Position(0, 4), "p"))
    typed = Query(Position(0, 5), selected=Selected(2, 5, "append"))
    assert await session.suggest(document, typed) == (Insertion("append(1)", taken=3),)
    assert len(core.requests) == 1
    other = Query(Position(0, 5), selected=Selected(2, 5, "apply"))
    assert await session.suggest(document, other) == (Insertion("apply(1)", taken=3),)
    assert len(core.requests) == 2


async def test_a_request_joins_the_prefetch_of_its_suggestion(
    core: StubCore, session: EditingSession, costs: list[PromptCost]
) -> None:
    release = asyncio.Event()

    async def wait() -> Completion:
        await release.wait()
        return completion("1")

    core.answer = wait
    document = await allowed(session, "x = ")
    session.prefetch_suggestion(document, Position(0, 4))
    asked = asyncio.create_task(session.suggest(document, Query(Position(0, 4))))
    await asyncio.sleep(0)
    release.set()
    assert await asked == (Insertion("1"),)
    assert len(core.requests) == 1
    assert [cost.is_prefetch for cost in costs] == [False]


async def test_a_prefetched_suggestion_is_at_hand(core: StubCore, session: EditingSession, costs: list[PromptCost]) -> None:
    document = await allowed(session, "x = ")
    session.prefetch_suggestion(document, Position(0, 4))
    await until_rest(document)
    assert await session.suggest(document, Query(Position(0, 4))) == (Insertion("1"),)
    assert [(cost.is_prefetch, cost.source) for cost in costs] == [(True, "core"), (False, "typed")]


async def test_no_flicker_while_it_is_typed(core: StubCore, session: EditingSession) -> None:
    answering(core, "f(a, 'b') + g[0]")
    document = opened(session, "h()")
    (first,) = await session.suggest(document, Query(Position(0, 2)))
    for column, character in enumerate(first.text[:-1], start=2):
        document.apply(Edit(Position(0, column), Position(0, column), character))
        assert await session.suggest(document, Query(Position(0, column + 1))) == (Insertion(first.text[column - 1 :]),)
    assert len(core.requests) == 1


async def test_documents_that_are_opened_at_once_are_one_to_prepare_and_lend_nothing(
    core: StubCore, hasty: EditingSession
) -> None:
    hasty.documents.configure(Settings(prepare_ahead="always"))
    many = [hasty.open(f"file:///{number}.py", "python", 1, f"x{number} = 1\n" * 9) for number in range(20)]
    await until(lambda: core.requests)
    await until_rest(many[-1])
    assert [(request.session, request.prompt.context) for request in core.requests] == [("me/file:///19.py", ())]
    await hasty.suggest(many[0], Query(Position(9, 0)))
    assert viewed(many[0]) == ["file:///0.py", "file:///19.py"]


async def test_what_the_user_does_meanwhile_says_where_they_look(core: StubCore, hasty: EditingSession) -> None:
    here, _preview = (hasty.open(f"file:///{name}.py", "python", 1, "x = ") for name in "ab")
    await hasty.suggest(here, Query(Position(0, 4)))
    hasty.close(hasty.open("file:///c.py", "python", 1, "x = ").document.uri)
    await asyncio.sleep(0.05)
    assert [request.session for request in core.requests] == ["me/file:///a.py"]
    assert viewed(here) == ["file:///a.py"]


async def test_a_request_waits_for_the_core_to_start(core: StubCore, session: EditingSession) -> None:
    core.ready = False
    document = opened(session, "x = ")
    session.core_changed(LinkStatus("starting"))
    asked = asyncio.create_task(session.suggest(document, Query(Position(0, 4))))
    await until(lambda: document.latest.busy)
    session.core_changed(LinkStatus("starting"))
    assert core.requests == []
    session.core_changed(LinkStatus("loading"))
    assert await asked == (Insertion("1"),)
    assert [request.max_tokens for request in core.requests] == [Settings().max_tokens]


async def test_a_request_does_not_wait_for_ever(core: StubCore, hasty: EditingSession) -> None:
    core.ready = False
    hasty.core_changed(LinkStatus("starting"))
    assert await hasty.suggest(opened(hasty, "x = "), Query(Position(0, 4))) == ()


async def test_the_latest_of_two_requests_is_answered_while_the_rules_are_looked_at(
    core: StubCore, session: EditingSession
) -> None:
    document = opened(session, "x = ")
    first = asyncio.create_task(session.suggest(document, Query(Position(0, 3))))
    second = asyncio.create_task(session.suggest(document, Query(Position(0, 4))))
    assert (await first, await second) == ((), (Insertion("1"),))
    assert len(core.requests) == 1


@pytest.mark.parametrize("opened_anew", [False, True])
async def test_what_is_closed_while_the_rules_are_looked_at_is_not_asked_for(
    core: StubCore, session: EditingSession, opened_anew: bool
) -> None:
    document = opened(session, "x = ")
    request = asyncio.create_task(session.suggest(document, Query(Position(0, 4))))
    await asyncio.sleep(0)
    session.close(document.document.uri)
    if opened_anew:
        opened(session, "y = ")
    assert await request == ()
    assert core.requests == []


async def test_a_key_costs_no_more_with_more_documents(session: EditingSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by the verdicts that are asked for, and by the documents that are looked at on the disk."""
    many = [session.documents.open(f"file:///{number}.py", "python", 1, "x = ") for number in range(300)]
    for document in many:
        await session.suggest(document, Query(Position(0, 4)))
    counted: list[str] = []
    verdicts = many[0].workspace.verdicts
    older, look = verdicts._is_any_older, verdicts._rules.verdict
    monkeypatch.setattr(verdicts, "_is_any_older", lambda uris, s: counted.extend(uris) or older(uris, s))
    monkeypatch.setattr(verdicts, "_now", lambda: time.monotonic() + 3)
    monkeypatch.setattr(verdicts._rules, "verdict", lambda uri: counted.append(uri) or look(uri))
    many[0].apply(Edit(Position(0, 0), Position(0, 0), "y"))
    await session.suggest(many[0], Query(Position(0, 1)))
    assert len(counted) < 600  # of 64 documents that may lend text and 32 others, some counted several times


async def test_nothing_is_suggested_or_looked_at_in_a_line_of_megabytes(core: StubCore, session: EditingSession) -> None:
    document = await allowed(session, "x = [\n" + "(1, 'é'), " * 500_000 + "\n]\n")
    for column in range(0, 200, 2):
        here = Position(1, column)
        document.apply(Edit(here, here, "(["))
        assert await session.suggest(document, Query(here)) == ()
        session.prefetch(document, here)
    assert core.requests == []
    assert await session.suggest(document, Query(Position(0, 5))) == (Insertion("1"),)
    assert len("".join(Query(Position(0, 5)).place(document.document, "", multi_line=True).lines_below)) < 100


async def test_the_cursor_is_where_edits_took_it(core: StubCore, session: EditingSession) -> None:
    document = opened(session, "a\nb\nc = 12")
    await session.suggest(document, Query(Position(2, 6)))
    document.apply(Edit(Position(0, 0), Position(2, 2), ""))
    session.prefetch(document)
    await until_rest(document)
    assert core.requests[-1].prompt.increment == "= 12"


async def test_a_hostile_ignore_file_holds_nothing_up(session: EditingSession, tmp_path: Path) -> None:
    lines = ["*a*a*a*a*a*a*a*a*a*a*a*ab", *(f"name{number}\n*.ending{number}" for number in range(20_000))]
    (tmp_path / ".gitignore").write_text("\n".join(lines))
    session.documents.use_folders([tmp_path.as_uri()])
    document = session.documents.open((tmp_path / ("a" * 200 + ".py")).as_uri(), "python", 1, "x = ")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    assert await session.suggest(document, Query(Position(0, 4))) == (Insertion("1"),)
    counting.cancel()
    assert turns > 10  # of the event loop, while the rules were looked at


async def test_a_snooze_that_has_ended_leaves_no_timer(session: EditingSession, monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[float] = []
    loop = asyncio.get_running_loop()
    later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda delay, *what: timers.append(delay) or later(delay, *what))
    session.snooze(0.01)
    await asyncio.sleep(0.05)
    session.snooze(0)
    assert timers.count(0.01) == 1
    assert 0 not in timers


async def test_a_snooze_ends_in_time_although_the_clock_is_set_back(
    session: EditingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = session.documents.open("file:///a.py", "python", 1, "x = ")
    session.snooze(0.02)
    assert session.explainer.waits_for_user(document) is not None
    an_hour_ago = time.time() - 3600
    monkeypatch.setattr("time.time", lambda: an_hour_ago)
    await asyncio.sleep(0.03)
    assert session.explainer.waits_for_user(document) is None


async def test_an_answer_is_not_shown_if_the_rules_exclude_the_document_meanwhile(
    core: StubCore, session: EditingSession, tmp_path: Path
) -> None:
    session.documents.use_folders([tmp_path.as_uri()])
    document = session.documents.open((tmp_path / "a.py").as_uri(), "python", 1, "x = ")

    async def exclude() -> Completion:
        (tmp_path / ".midfillignore").write_text("*.py\n")
        verdicts = document.workspace.verdicts
        later = time.monotonic() + 3
        verdicts._now = lambda: later
        verdicts._rules._ignored._now = verdicts._now
        await verdicts.look([document.document.uri])
        return completion("1")

    core.answer = exclude
    assert await session.suggest(document, Query(Position(0, 4))) == ()
    assert "*.py in .midfillignore, line 1" in session.explainer.reason(document).explanation
