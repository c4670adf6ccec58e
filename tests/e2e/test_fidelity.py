"""What the model writes reaches the document through a real language server: cases with the right result."""

from __future__ import annotations

import sys
from pathlib import Path

from inference.text.stops import Stops
from lsp_server.documents.documents import Edit, Position, end_of
from midfill.headless.lsp_session import open_session
from midfill_lab.evaluation.fidelity import read_cases
from protocol.messages import CompletionRequest
from tests.lsp_server.fake_core import FakeCore

CASES = Path(__file__).parents[1] / "data" / "fidelity" / "cases"


async def test_every_case_through_a_language_server_process() -> None:
    core = FakeCore()
    written = ""

    async def answer(request: CompletionRequest) -> str:
        return Stops(request.stop, suffix=request.prompt.suffix).last(written, "stop")[0] if request.max_tokens else ""

    core.answer = answer
    wrong = {}
    async with core.listening():
        settings = {"core": core.url, "coreToken": core.token, "debounceMs": 0}
        async with open_session([sys.executable, "-m", "midfill", "lsp"], settings=settings) as session:
            cases = [case for file in sorted(CASES.iterdir()) for case in read_cases(file)]
            for number, case in enumerate(cases):
                uri, written = f"untitled:{number}", case.model
                session.open(uri, case.language_id, case.head + case.tail)
                await session.wait_until_ready(30.0)
                answered = await session.suggest(uri, end_of(Position(0, 0), case.head))
                for shown in answered.suggestions:
                    session.change(uri, [Edit(shown.start, shown.end, shown.text)])
                if (text := session.documents[uri].text) != case.expected:
                    wrong[case.name] = text
                session.close(uri)
    assert len(cases) >= 79
    assert wrong == {}
