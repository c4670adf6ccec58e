"""The published clients of OpenAI and Ollama ask a core process: what they read, and what they pay."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.attacked import Core, attacked_core

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),  # the packages' own
]

PREFIX = "import os\n\n\ndef size_of(path):\n    return os.stat(path).st_size\n\n\n" * 12 + "def names(folder):\n"
TYPED = "    return [name for name in os.listdir(folder)]\n"
SUFFIX = "\n\nif __name__ == '__main__':\n    print(names('.'))\n" * 6
SLACK_TOKENS = 3


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    with attacked_core(tmp_path_factory.mktemp("runtime")) as core:
        yield core


@pytest.fixture
def openai_client(core: Core) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"http://{core.address}/v1", api_key=core.token, max_retries=0) as client:
        yield client


def check_typing(computed: list[int]) -> None:
    """Each number of computed prompt tokens is that of one more letter typed."""
    assert len([tokens for tokens in computed[1:] if tokens > SLACK_TOKENS]) <= 1, computed


def rendered(typed: str) -> str:
    return f"<|fim_prefix|>{PREFIX}{typed}<|fim_suffix|>{SUFFIX}<|fim_middle|>"


def test_openai(openai_client: Any) -> None:
    import openai

    client = openai_client
    (model,) = client.models.list().data
    whole = client.completions.create(model=model.id, prompt=PREFIX, suffix=SUFFIX, max_tokens=16, temperature=0)
    assert whole.choices[0].text
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 16
    stream = client.completions.create(
        model=model.id, prompt=PREFIX, suffix=SUFFIX, max_tokens=16, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert last.usage.prompt_tokens_details.cached_tokens >= last.usage.prompt_tokens - SLACK_TOKENS
    several = client.completions.create(
        model=model.id, prompt=PREFIX, n=2, temperature=1.2, seed=3, max_tokens=4, presence_penalty=1, stop=["\n\n"]
    )
    assert [choice.index for choice in several.choices] == [0, 1]
    with pytest.raises(openai.UnprocessableEntityError, match="logprobs is not supported"):
        client.completions.create(model=model.id, prompt="x", logprobs=1)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


def test_openai_pays_for_what_is_typed_in_a_rendered_prompt(openai_client: Any) -> None:
    computed = []
    for length in range(len(TYPED) + 1):
        prompt = rendered(TYPED[:length])
        answer = openai_client.completions.create(model="any", prompt=prompt, max_tokens=4, temperature=0)
        computed.append(answer.usage.prompt_tokens - answer.usage.prompt_tokens_details.cached_tokens)
    check_typing(computed)


async def test_openai_stops_reading(core: Core) -> None:
    """A core that has ended the request answers the next one at once; and 20 at a time are answered."""
    openai = pytest.importorskip("openai")
    async with openai.AsyncOpenAI(base_url=f"http://{core.address}/v1", api_key=core.token) as client:
        stream = await client.completions.create(model="any", prompt=PREFIX, max_tokens=1000, stream=True)
        async for _ in stream:
            break
        await stream.close()
        asked = [client.completions.create(model="any", prompt=f"x{n} = ", max_tokens=4) for n in range(20)]
        assert len(await asyncio.gather(*asked)) == 20


def test_ollama(core: Core) -> None:
    ollama = pytest.importorskip("ollama")
    with ollama.Client(host=f"http://{core.address}", headers=core.bearer) as client:
        check_ollama(client, ollama.ResponseError)


def check_ollama(client: Any, error: type[Exception]) -> None:
    (model,) = client.list().models
    shown = client.show(model.model)
    assert ".Suffix" in shown.template
    assert "insert" in shown.capabilities
    asked = {"model": model.model, "options": {"num_predict": 8, "temperature": 0}}
    whole = client.generate(prompt=PREFIX, suffix=SUFFIX, **asked)
    *_, last = parts = list(client.generate(prompt=PREFIX, suffix=SUFFIX, stream=True, **asked))
    assert "".join(part.response for part in parts) == whole.response
    assert (last.done, last.eval_count) == (True, whole.eval_count)
    raw = client.generate(prompt=rendered(""), raw=True, **asked)
    assert raw.response == whole.response
    with pytest.raises(error, match="system is not supported"):
        client.generate(model=model.model, prompt="x", system="be brief")


def test_the_documented_examples_print_one_line_each(core: Core) -> None:
    page = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        program = example.replace("127.0.0.1:8765", core.address).replace("TOKEN", core.token)
        printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        assert printed.strip()
        assert printed.count("\n") == 1  # it ends at the newline, before the suffix
