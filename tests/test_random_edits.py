"""Random edits in every encoding, through a language server and a core: every answer is that of a cold engine.

`make test-random` makes a million edits, and prints how many answers it has compared.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from lsprotocol import types
from msgspec.structs import replace

from inference.engine.engine import Engine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from lsp_server.core_client.client import CoreClient
from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.documents.positions import PositionCodec, PositionEncoding
from protocol.messages import Completion, CompletionRequest
from protocol.settings import TINY_MODEL
from tests.faults.attacked import Core, attacked_core
from tests.lsp_server.editor import Editor, connected_editor
from tests.lsp_server.test_mirror import PIECES, random_place

EDITS = int(os.environ.get("RANDOM_EDITS", "150"))  # in each encoding
ASKED_EVERY = 5  # notifications
MOST_CHANGES = 8  # of a notification
MOST_CHARS = 1_500  # of a document
CHECKED_EVERY = 500  # notifications
CODE = "import os\n\n\ndef mean(values):\n    return sum(values) / len(values)\n"
SETTINGS = {"prefixTokens": 96, "suffixTokens": 32, "maxTokens": 6, "debounceMs": 0, "prepareAhead": "never"}


@dataclass
class Typing:
    """An editor and its copies of the documents."""

    editor: Editor
    codec: PositionCodec
    chance: random.Random
    documents: list[Document] = field(default_factory=list)
    last: tuple[Document, Position] | None = None  # where the last edit was

    def open(self, text: str) -> None:
        document = Document.from_text(f"file:///{len(self.documents)}.py", "python", 1, text)
        self.documents.append(document)
        self.editor.open(text, uri=document.uri)

    def edit_somewhere(self) -> int:
        """Tell of one to MOST_CHANGES edits of a document in one notification; how many they were."""
        document, chance = self.chance.choice(self.documents), self.chance
        changes = [self._change(document) for _ in range(chance.randint(1, MOST_CHANGES))]
        document.version += 1
        identifier = {"uri": document.uri, "version": document.version}
        self.editor.tell_in_json("textDocument/didChange", {"textDocument": identifier, "contentChanges": changes})
        return len(changes)

    def _change(self, document: Document) -> dict[str, object]:
        chance = self.chance
        start, end = sorted(random_place(chance, document) for _ in range(2))
        if len(document.text) < MOST_CHARS and chance.random() < 0.9:
            end = start
        text = "".join(chance.choices([*PIECES, *CODE.splitlines(keepends=True)], k=chance.randrange(4)))
        first, last = self.codec.encode(document, start), self.codec.encode(document, end)
        document.apply(Edit(start, end, text))
        self.last = document, start
        return {"range": {"start": _in_json(first), "end": _in_json(last)}, "text": text}

    async def ask(self) -> None:
        document, place = self.last or (self.documents[0], Position(0, 0))
        if self.chance.random() < 0.3:
            document = self.chance.choice(self.documents)
            place = random_place(self.chance, document)
        cursor = self.codec.encode(document, place)
        await self.editor.suggest(cursor.line, cursor.character, uri=document.uri)

    async def check_texts(self) -> None:
        for document in self.documents:
            said = await self.editor.document_hash(uri=document.uri)
            assert said.sha256 == hashlib.sha256(document.text.encode()).hexdigest()
        assert self.editor.resyncs == []


def _in_json(position: types.Position) -> dict[str, int]:
    return {"line": position.line, "character": position.character}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    with attacked_core(tmp_path_factory.mktemp("core"), "--dtype", "float32", "--threads", "1") as core:
        yield core


@pytest.fixture(scope="module")
def cold() -> Engine:
    return load_engine(EngineOptions(TINY_MODEL, dtype="float32", threads=1))


@pytest.mark.parametrize("encoding", PositionEncoding)
async def test_every_answer_is_that_of_a_cold_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, core: Core, cold: Engine, encoding: PositionEncoding
) -> None:
    answers = list[tuple[CompletionRequest, Completion]]()
    complete = CoreClient.complete

    async def noted(self: CoreClient, request: CompletionRequest) -> Completion:
        request = replace(request, max_prefill_ms=0)  # the whole prompt, however busy the machine is
        answers.append((request, completion := await complete(self, request)))
        return completion

    monkeypatch.setattr(CoreClient, "complete", noted)
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path))
    edits = compared = reused = 0
    async with connected_editor() as editor:
        core_settings = {"core": f"ws://{core.address}/ws", "coreToken": core.token}
        await editor.start({**SETTINGS, **core_settings}, encoding=encoding.value)
        typing = Typing(editor, PositionCodec(encoding), random.Random(encoding.value))
        for text in (CODE, "x = '😋'\r\n\n\ty = 2\r"):
            typing.open(text)
        await editor.until_state("ready")
        for number in itertools.count(1):
            edits += typing.edit_somewhere()
            is_last = edits >= EDITS
            if number % ASKED_EVERY and not is_last:
                continue
            await typing.ask()
            for request, warm in answers:
                afresh = cold.complete(replace(request, reuse=False))
                assert (warm.text, warm.finish_reason) == (afresh.text, afresh.finish_reason), request
                reused += warm.usage.recomputed_tokens < warm.usage.prompt_tokens
            compared += len(answers)
            answers.clear()
            if number % CHECKED_EVERY == 0 or is_last:
                await typing.check_texts()
                counts = f"{edits:,} edits, {compared:,} answers compared, {reused:,} of them reused KV"
                print(f"{encoding.value}: {counts}", flush=True)  # noqa: T201
            if is_last:
                break
    assert compared > EDITS // MOST_CHANGES // ASKED_EVERY // 2
    assert reused > compared // 10
