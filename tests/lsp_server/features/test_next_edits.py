"""Next edits as an editor asks for them, of a core that replays the recorded answers of Zeta 2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lsp_server.custom_messages import DID_SHOW_EDIT, EDIT_ACCEPTED_COMMAND, EDIT_REFUSED_COMMAND, INLINE_EDIT
from lsp_server.usage.statistics import read_statistics, statistics_file, total
from protocol.errors import BadInput
from protocol.messages import CompletionRequest
from tests.lsp_server.editor import URI, Editor, editor_on, until
from tests.lsp_server.fake_core import FakeCore, fails, never, says
from tests.recorded_next_edits import buffer_of, recorded_answers

HEADERS = "10-go-map-value-to-slice"
AFTER = buffer_of(HEADERS)
BEFORE = AFTER.replace("[][]string", "[]string").replace("map[string][]string", "map[string]string")
FIRST, SECOND = (line for line, text in enumerate(AFTER.split("\n")) if "[]string" in text)
CURSOR = {"line": 15, "character": 11}


@pytest.fixture(autouse=True)
def _own_statistics() -> None:
    statistics_file().unlink(missing_ok=True)


@pytest.fixture
async def model() -> AsyncIterator[FakeCore]:
    """The core of the model of next edits."""
    core = FakeCore()
    core.answer = says(recorded_answers("zeta-2", HEADERS)[0])
    async with core.listening():
        yield core


@asynccontextmanager
async def editing(core: FakeCore, model: FakeCore, **options: Any) -> AsyncIterator[Editor]:
    """An editor in which the user has just widened the values of a map to slices."""
    settings = {"nextEditModel": "zeta-2:any", "nextEditEngine": model.url}
    async with editor_on(core, settings=settings, **options) as editor:
        await until(lambda: model.connections)
        widen(editor)
        yield editor


@pytest.fixture
async def editor(core: FakeCore, model: FakeCore) -> AsyncIterator[Editor]:
    async with editing(core, model) as editor:
        yield editor


def widen(editor: Editor) -> None:
    editor.open(BEFORE, language="go")
    for version, line in enumerate((FIRST, SECOND), start=2):
        column = BEFORE.split("\n")[line].index("]string") + 1
        editor.change(version, (line, column), (line, column), "[]")


async def ask(editor: Editor, version: int = 3, position: dict[str, int] = CURSOR, kind: int = 2) -> list[Any]:
    params = {"textDocument": {"uri": URI, "version": version}, "position": position, "context": {"triggerKind": kind}}
    return list(as_json(await editor.ask_in_json(INLINE_EDIT, params))["edits"])


def as_json(value: Any) -> Any:
    """What pygls has made an object of, as JSON has it."""
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return {name: as_json(item) for name, item in value._asdict().items()} if hasattr(value, "_asdict") else value


def apply(editor: Editor, edit: Any, version: int) -> None:
    start, end = edit["range"]["start"], edit["range"]["end"]
    places = (start["line"], start["character"]), (end["line"], end["character"])
    editor.change(version, *places, edit["text"])


def applied(text: str, edit: Any) -> str:
    lines = text.split("\n")
    start, end = (
        sum(len(line) + 1 for line in lines[: place["line"]]) + place["character"]
        for place in (edit["range"]["start"], edit["range"]["end"])
    )
    return text[:start] + edit["text"] + text[end:]


def counted() -> tuple[int, int, int]:
    statistics = total(read_statistics(statistics_file()).values())
    return statistics.next_edits_shown, statistics.next_edits_accepted, statistics.next_edits_refused


async def test_a_recorded_answer_becomes_one_edit_and_its_acceptance_is_counted(core: FakeCore, model: FakeCore) -> None:
    async with editing(core, model) as editor:
        await offer_and_accept(editor, model)
    assert counted() == (1, 1, 0)


async def offer_and_accept(editor: Editor, model: FakeCore) -> None:
    (edit,) = await ask(editor)
    assert edit["textDocument"] == {"uri": URI, "version": 3}
    assert applied(AFTER, edit) == recorded_answers("zeta-2", HEADERS)[0].removesuffix("\n")
    shown = AFTER
    for part in reversed(edit["parts"]):
        shown = applied(shown, part)
    assert shown == applied(AFTER, edit)
    (request,) = model.asked
    assert "<|user_cursor|>" in "".join(request.prompt.marked)
    assert "+\tvalues map[string][]string" in "".join(request.prompt.marked)
    assert request.session.endswith(f"-next/{URI}")
    apply(editor, edit, 4)
    await editor.execute(EDIT_ACCEPTED_COMMAND, *edit["command"]["arguments"])
    await ask(editor, 4)
    assert "// User accepted prediction:" in "".join(model.asked[-1].prompt.marked)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_an_edit_ends_in_the_line_that_it_changes(core: FakeCore, model: FakeCore, line_end: str) -> None:
    model.answer = says("a = 1\nb = bb\nc = 3x\n")
    async with editing(core, model) as editor:
        editor.open(f"a = 1{line_end}b = aa{line_end}c = 3{line_end}")
        editor.change(2, (2, 5), (2, 5), "x")
        (edit,) = await ask(editor, 2, {"line": 2, "character": 6})
        places = [edit["range"][side] for side in ("start", "end")]
        assert places == [{"line": 1, "character": 4}, {"line": 1, "character": 6}]
        apply(editor, edit, 3)
        assert await ask(editor, 3) == []
    assert counted() == (1, 1, 0)


@pytest.mark.parametrize("accepts", [True, False])
async def test_an_edit_of_one_character_is_accepted_if_the_client_says_so(
    core: FakeCore, model: FakeCore, *, accepts: bool
) -> None:
    model.answer = says("a = 1\nb = bb\nc = 3x\n")
    async with editing(core, model) as editor:
        editor.open("a = 1\nb = b\nc = 3\n")
        editor.change(2, (2, 5), (2, 5), "x")
        (edit,) = await ask(editor, 2, {"line": 2, "character": 6})
        apply(editor, edit, 3)
        if accepts:
            await editor.execute(EDIT_ACCEPTED_COMMAND, *edit["command"]["arguments"])
        assert await ask(editor, 3) == []
    assert counted() == (1, accepts, 0)


async def test_a_request_after_a_pause_in_typing_tells_of_what_was_typed(editor: Editor, model: FakeCore) -> None:
    model.answer = says("NO_EDITS\n")
    await ask(editor)
    editor.change(4, (0, 0), (0, 0), "// ")
    await asyncio.sleep(0.1)  # as clients wait
    await ask(editor, 4)
    assert "+// package http" in "".join(model.asked[-1].prompt.marked)


async def test_at_rest_the_prompt_is_laid_anew_ahead_of_the_next_key(editor: Editor, model: FakeCore) -> None:
    model.answer = says("NO_EDITS\n")
    await ask(editor)
    editor.change(4, (0, 0), (0, 0), "// ")
    await ask(editor, 4)
    typed, prefetch = "+// package http", len(model.requests)
    assert typed not in "".join(model.asked[-1].prompt.marked)  # so that the key cost little
    await until(lambda: len(model.requests) > prefetch)
    assert model.requests[-1].max_tokens == 0
    assert typed in "".join(model.requests[-1].prompt.marked)
    assert model.requests[-1].session == model.asked[-1].session


async def test_a_prompt_tells_of_edits_in_the_document_that_was_left(core: FakeCore, model: FakeCore) -> None:
    async def unchanged(request: CompletionRequest) -> str:
        return request.copies

    model.answer = unchanged
    async with editor_on(core, settings={"nextEditModel": "sweep-a:any", "nextEditEngine": model.url}) as editor:
        await until(lambda: model.connections)
        editor.open("f()\n")
        editor.open("def f(): ...\n", uri="file:///project/b.py")
        editor.change(2, (0, 0), (0, 0), "a")
        await ask(editor, 2)
        editor.change(2, (0, 4), (0, 5), "g", uri="file:///project/b.py")
        editor.change(3, (0, 1), (0, 1), "b")
        await ask(editor, 3)
        assert "def g(): ..." in "".join(model.asked[-1].prompt.marked)


async def test_what_the_gate_forbids_is_not_offered(editor: Editor, model: FakeCore) -> None:
    model.answer = says("NO_EDITS\n")
    assert await ask(editor) == []
    assert await ask(editor) == []  # of the same place the model is not asked again
    assert len(model.asked) == 1
    editor.open("x = 1\n", uri="file:///project/b.py")
    params = {"textDocument": {"uri": "file:///project/b.py"}, "position": {"line": 0, "character": 0}}
    assert as_json(await editor.ask_in_json(INLINE_EDIT, params))["edits"] == []  # nothing was edited there
    assert len(model.asked) == 1


async def test_after_undo_or_redo_of_several_keys_nothing_is_asked(editor: Editor, model: FakeCore) -> None:
    model.answer = says("NO_EDITS\n")
    for version, key in enumerate("// ", start=4):
        editor.change(version, (0, version - 4), (0, version - 4), key)
    editor.change(7, (0, 0), (0, 3), "")
    assert await ask(editor, 7) == []
    editor.change(8, (0, 0), (0, 0), "// ")
    assert await ask(editor, 8) == []
    assert model.asked == []
    editor.change(9, (0, 0), (1, 0), "")
    editor.change(10, (1, 0), (1, 0), "// package http\n")  # moved
    await ask(editor, 10)
    assert len(model.asked) == 1


async def test_an_offer_follows_the_typing_without_a_request(editor: Editor, model: FakeCore) -> None:
    (edit,) = await ask(editor)
    start = edit["range"]["start"]
    place = start["line"], start["character"]
    editor.change(4, (0, 0), (0, 0), "// headers\n")
    (moved,) = await ask(editor, 4)
    assert moved["range"]["start"] == {**start, "line": start["line"] + 1}
    end = moved["range"]["end"]
    editor.change(5, (place[0] + 1, place[1]), (end["line"], end["character"]), moved["text"][:1])
    (rest,) = await ask(editor, 5)
    assert len(rest["text"]) < len(edit["text"])
    assert len(model.asked) == 1


async def test_what_the_user_refuses_is_not_offered_again(core: FakeCore, model: FakeCore) -> None:
    async with editing(core, model) as editor:
        (edit,) = await ask(editor)
        editor.protocol.notify(DID_SHOW_EDIT, {"item": {"command": edit["command"]}})
        await editor.execute(EDIT_REFUSED_COMMAND, *edit["command"]["arguments"])
        assert await ask(editor) == []
        assert len(model.asked) == 1  # for some seconds nothing is asked
        assert await ask(editor, kind=1) == []  # asked by hand, the model says the same
        assert len(model.asked) == 2
    assert counted() == (1, 0, 1)


async def test_where_suggestions_are_off_nothing_is_offered(editor: Editor, model: FakeCore) -> None:
    assert await ask(editor)
    editor.switch("buffer")
    assert await ask(editor) == []
    assert await ask(editor, kind=1)
    await editor.document_hash()
    editor.switch(None)
    assert await ask(editor)
    assert len(model.asked) == 2


async def test_a_command_that_comes_as_a_notification_is_run(core: FakeCore, model: FakeCore) -> None:
    async with editing(core, model) as editor:
        (edit,) = await ask(editor)
        command = edit["command"]
        editor.tell_in_json("workspace/executeCommand", {"command": command["command"], "arguments": command["arguments"]})
        editor.tell_in_json("workspace/executeCommand", {"command": ["none"]})
        await editor.document_hash()
        assert editor.messages == []
    assert counted() == (1, 1, 0)


async def test_an_edit_cancels_the_request(editor: Editor, model: FakeCore) -> None:
    model.answer = never
    asked = asyncio.create_task(ask(editor))
    await until(lambda: model.asked)
    editor.change(4, (0, 0), (0, 0), "x")
    assert await asked == []
    await until(lambda: model.cancelled)


async def test_an_excluded_document_is_forgotten(core: FakeCore, model: FakeCore, tmp_path: Path) -> None:
    secret, seen = (tmp_path / name for name in (".env", "seen.txt"))
    async with editing(core, model, folder=tmp_path.as_uri()) as editor:

        def type_everywhere(version: int) -> None:
            for file in (secret, seen):
                editor.change(version, (0, 6), (0, 6), f"{file.name} hush", uri=file.as_uri())
            editor.change(version + 2, (0, 0), (0, 0), "/")

        for file in (secret, seen):
            editor.open("TOKEN=\n", uri=file.as_uri())
        type_everywhere(2)
        assert await ask(editor, 4, kind=1) == []  # before anything of .env was known to be a secret
        assert model.asked == []
        type_everywhere(3)
        await ask(editor, 5, kind=1)
        assert "seen.txt hush" in str(model.asked)
        assert ".env hush" not in str(model.asked)
        known = len(model.asked)
        (tmp_path / ".midfillignore").write_text("seen.txt\n")
        while not model.forgotten:
            await asyncio.sleep(0.1)
            await ask(editor, 5, kind=1)
        type_everywhere(4)
        before = len(model.asked)
        await ask(editor, 6, kind=1)
        assert len(model.asked) > before >= known
        assert "hush" not in str(model.asked[before:])


async def test_a_model_that_cannot_answer_is_told_once(editor: Editor, model: FakeCore) -> None:
    model.answer = fails(BadInput("the model's tokenizer has no token '<[fim-suffix]>', which the prompt needs"))
    assert await ask(editor) == []
    assert await ask(editor, kind=1) == []
    (message,) = editor.messages
    assert "no next edits: the model's tokenizer has no token" in message


async def test_without_a_model_nothing_is_asked(core: FakeCore) -> None:
    async with editor_on(core) as editor:
        widen(editor)
        assert await ask(editor) == []
        assert core.asked == []


async def test_a_model_of_no_known_format_is_reported(core: FakeCore) -> None:
    async with editor_on(core, settings={"nextEditModel": "qwen"}) as editor:
        await until(lambda: editor.messages)
        assert "qwen is no next-edit model" in editor.messages[0]
