"""A llama-server that the core has started, and that dies, hangs or answers rubbish: a sentence, and then a new one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.core.engine_holder import EngineHolder
from inference.core.scheduler import Scheduler
from inference.engine.request import Request
from inference.loading.options import EngineOptions
from inference.remote.connecting import connect
from midfill_lab.recipe.to_gguf import write_gguf
from protocol.errors import EngineUnavailable
from protocol.messages import Completion, CompletionRequest, Prompt
from tests.faults.attacked import report, wait_until
from tests.inference.tiny import ROOT

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

PROGRAM = """#!{python}
import asyncio, os, sys
from pathlib import Path
sys.path[:0] = {path!r}
import uvicorn
from starlette.responses import Response
from inference.text.tokenization import read_tokenizer
from tests.inference.remote.fake_servers import FakeServer, llama_server
fault, folder = Path({fault!r}), {folder!r}
state = FakeServer(read_tokenizer(Path(folder, "tokenizer.json")), model=folder, key=os.environ["LLAMA_API_KEY"])
app = llama_server(state)
async def attacked(scope, receive, send):
    if scope["type"] == "http" and scope["path"] == "/completion" and fault.exists():
        how = fault.read_text()
        fault.unlink()
        if how == "dies":
            os._exit(3)
        if how == "hangs":
            await asyncio.sleep(1000)
        rubbish = dict(page=b"<html>", events=b"data: <html>\\n\\n", nothing=b"", noise=os.urandom(1000))
        kind = "text/html" if how == "page" else "text/event-stream"
        return await Response(rubbish[how], media_type=kind)(scope, receive, send)
    await app(scope, receive, send)
uvicorn.run(attacked, uds=sys.argv[sys.argv.index("--host") + 1], log_level="critical", lifespan="off")
"""


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf("tiny", path)
    return path


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with TemporaryDirectory(dir="/tmp") as folder:  # a short path, for a Unix socket
        monkeypatch.setenv("MIDFILL_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.mark.parametrize("fault", ["dies", "hangs", "page", "events", "nothing", "noise"])
def test_a_faulty_child_fails_one_request_with_a_sentence(
    fault: str, gguf: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.remote.server.SILENCE_S", 3.0)
    monkeypatch.setattr("inference.core.engine_holder.RETRY_UNREACHABLE_AFTER_S", 0.0)
    program, told = runtime / "llama-server", runtime / "fault"
    folder = str(BUNDLED_FOLDERS["tiny"])
    text = PROGRAM.format(python=sys.executable, path=[str(ROOT)], fault=str(told), folder=folder)
    program.write_text(text)
    program.chmod(0o755)
    options = EngineOptions(str(gguf), engine=f"llama-server={program}")
    scheduler = Scheduler(EngineHolder("remote", lambda _: connect(options), lambda _: None))

    def ask() -> Completion | Exception | None:
        request = Request(CompletionRequest("me/a.py", Prompt("x = ", "\n"), 4))
        scheduler.submit(request)
        wait_until(lambda: request.has_ended)
        return request.outcome

    answers = [ask()]
    told.write_text(fault)
    answers += [ask(), ask()]
    assert scheduler.close(60)
    kinds = [type(answer).__name__ for answer in answers]
    report(f"a child that {fault}" if fault in ("dies", "hangs") else f"a child that answers {fault}", "1 error", str(answers[1]))
    assert kinds == ["Completion", EngineUnavailable.__name__, "Completion"]
    assert str(answers[1]).rpartition(": ")[2], "it says why"
    assert not list(runtime.glob("*.sock"))
