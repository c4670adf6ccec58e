"""`midfill doctor` with an engine in another process: reachable, its model, its cache, its tokens."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from midfill.doctor.checks import engine
from midfill.doctor.findings import Section
from protocol.settings import Settings
from tests.inference.remote.conftest import folder_tokenizer, opened, server, tokenizer_folder  # noqa: F401
from tests.inference.remote.fake_servers import FakeServer, llama_server, openai_server, serving


@pytest.fixture(params=["llama-server", "openai"])
def url(request: pytest.FixtureRequest, server: FakeServer, opened: ExitStack) -> str:  # noqa: F811
    kinds = {"llama-server": llama_server, "openai": openai_server}
    return f"{request.param}={opened.enter_context(serving(kinds[request.param](server)))}"


async def examined(settings: Settings) -> Section:
    section = await engine(settings)
    assert section is not None
    return section


async def test_the_local_engine_has_no_section() -> None:
    assert await engine(Settings()) is None


async def test_a_sound_engine(url: str, tokenizer_folder: Path) -> None:  # noqa: F811
    section = await examined(Settings(engine=url))
    assert section.problems == ()
    facts = dict(section.facts)
    assert facts["model"] == str(tokenizer_folder)
    assert facts["tokens"] == "those of the engine"
    cached, of, *_ = facts["cache"].split()
    assert int(cached) > 100
    assert of == "of"


async def test_an_engine_without_a_cache(url: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(server, "cached", lambda *_, **__: 0)
    assert "recomputes repeated prompts" in (await examined(Settings(engine=url))).problems[0]


async def test_a_hidden_cache_is_not_invented(server: FakeServer, opened: ExitStack) -> None:  # noqa: F811
    server.reports_cached = False
    section = await examined(Settings(engine=f"openai={opened.enter_context(serving(openai_server(server)))}"))
    assert dict(section.facts)["cache"] == "not reported"


async def test_other_tokens_are_a_problem(url: str, server: FakeServer) -> None:  # noqa: F811
    server.tokens_of = lambda text: [1, 2, 3]
    assert "is not that of the model" in (await examined(Settings(engine=url))).problems[0]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("openai=http://127.0.0.1:9", "cannot be reached"),
        ("llama-server=/no/such/program", "there is no program"),
        ("nonsense", "engine = 'nonsense'"),
        ("openai=http://a,http://b", "put a router before them"),
    ],
)
async def test_an_engine_that_does_not_answer_or_is_missing(setting: str, problem: str) -> None:
    assert problem in (await examined(Settings(engine=setting))).problems[0]
