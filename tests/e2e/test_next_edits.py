"""A language server's process, the core of next edits that it starts, and an engine that replays a recorded answer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from inference.text.tokenization import read_tokenizer
from lsp_server.documents.documents import Edit, Position
from midfill.headless.environment import private_core_environment
from midfill.headless.lsp_session import open_session
from protocol.settings import TINY_MODEL
from tests.e2e.conftest import READY_SECONDS
from tests.inference.remote.fake_servers import FakeServer, llama_server, serving
from tests.inference.tiny import MARKERS, write_tokenizer
from tests.recorded_next_edits import buffer_of, recorded_answers

NAME, URI = "10-go-map-value-to-slice", "file:///project/headers.go"
ZETA = ("<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>")


async def test_a_recorded_answer_becomes_an_edit_and_the_same_again_none(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json", markers=(*MARKERS, *ZETA))
    engine = FakeServer(read_tokenizer(tmp_path / "tokenizer.json"), model=str(tmp_path), context=16_384)
    after, answer = buffer_of(NAME), recorded_answers("zeta-2", NAME)[0]
    before = after.replace("map[string][]string", "map[string]string")
    with serving(llama_server(engine)) as url, private_core_environment() as environment:
        settings = {
            "model": TINY_MODEL,
            "prepareAhead": "never",
            "nextEditModel": f"zeta-2:{tmp_path}",
            "nextEditEngine": f"llama-server={url}",
        }
        command = [sys.executable, "-m", "midfill", "lsp"]
        async with open_session(command, settings=settings, environment=environment) as session:
            session.open(URI, "go", before)
            mirror = session.documents[URI]
            for line, text in enumerate(after.split("\n")):
                if "map[string][]string" in text:
                    place = Position(line, text.index("[]string"))
                    session.change(URI, [Edit(place, place, "[]")])
            engine.script = answer + ">>>>>>> UPDATED"
            async with asyncio.timeout(READY_SECONDS):
                while (edit := await session.next_edit(URI, Position(15, 0))) is None:
                    await asyncio.sleep(0.2)  # the core is starting
            session.change(URI, [edit])
            assert mirror.text.rstrip() == answer.rstrip()
            assert await session.next_edit(URI, Position(15, 0)) is None  # the model repeats what is there now
            assert session.messages == []
    prompts = [body["prompt"] for body in engine.bodies if body["n_predict"] > 1]
    assert len(prompts) == 2
    markers = [engine.tokenizer.marker_id(marker) for marker in ZETA]
    assert all([id_ for id_ in prompt if id_ in markers] == markers for prompt in prompts)
