"""Rendered prompts of next-edit models through the APIs, as Zed and cursortab send them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from inference.loading.options import EngineOptions
from protocol.messages import CompletionRequest
from tests.inference.core.http.calls import post
from tests.inference.serving import BEARER, client_of
from tests.inference.tiny import MARKERS, write_checkpoint
from tests.recorded_next_edits import recorded_bodies

NEXT_EDIT_MARKERS = ("<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>", "<|file_sep|>")
HISTORY = "<filename>edit_history\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\n\n"
ZETA = f"<[fim-suffix]>end()\n<[fim-prefix]>{HISTORY}<filename>a.py\nb\n"
ZETA_2 = f"{ZETA}<<<<<<< CURRENT\nb = <|user_cursor|>a\n=======\n<[fim-middle]>"
ZETA_2_1 = f"{ZETA}<|marker_1|>b = <|user_cursor|>a\n<|marker_2|>\n<[fim-middle]>"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("next-edit")
    checkpoint = write_checkpoint(folder, markers=(*MARKERS, *NEXT_EDIT_MARKERS), max_position_embeddings=2048)
    with client_of(EngineOptions(str(checkpoint), context_tokens=2048, threads=1, slots=2)) as client:
        client.headers.update(BEARER)
        yield client


@pytest.mark.parametrize("model", ["zeta-2", "sweep-next-edit-1.5B"])
def test_a_prompt_is_computed_as_it_is_and_stays_resident(client: TestClient, asked: list[CompletionRequest], model: str) -> None:
    body = {**next(recorded_bodies(model)), "max_tokens": 4, "session": model}
    post(client, "/v1/completions", body)
    prompt = body["prompt"]
    typed = prompt.replace("cursor|>", "cursor|>x", 1)
    usage = post(client, "/v1/completions", {**body, "prompt": typed})["usage"]
    assert ["".join(request.prompt.marked) for request in asked] == [prompt, typed]
    assert set(body["stop"]) <= set(asked[0].stop_texts)
    before_cursor = prompt.index("cursor|>") / len(prompt)
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0.8 * before_cursor * usage["prompt_tokens"]


def test_zeta_2_stops_at_its_marker_without_being_told(client: TestClient, asked: list[CompletionRequest]) -> None:
    prompt = next(recorded_bodies("zeta-2"))["prompt"]
    post(client, "/v1/completions", {"prompt": prompt, "max_tokens": 1, "stop": []})
    body = {"prompt": prompt, "raw": True, "stream": False, "options": {"num_predict": 1}}
    post(client, "/api/generate", body)
    assert [request.stop_texts for request in asked] == [(">>>>>>> UPDATED",)] * 2


@pytest.mark.parametrize(("prompt", "stop"), [(ZETA_2, []), (ZETA_2_1, ["<[end▁of▁sentence]>"])])
def test_zed(client: TestClient, asked: list[CompletionRequest], prompt: str, stop: list[str]) -> None:
    """The body and the fields that Zed's `RawCompletionRequest` and `RawCompletionResponse` have."""
    body = {"model": "zeta2", "prompt": prompt, "max_tokens": 4 * 1024, "stop": stop}  # more than the context has
    answer = post(client, "/v1/completions", body)
    assert "".join(asked[0].prompt.marked) == prompt
    assert set(stop) <= set(asked[0].stop_texts)
    for name, kind in {"id": str, "object": str, "created": int, "model": str}.items():
        assert type(answer[name]) is kind
    (choice,) = answer["choices"]
    assert type(choice["text"]) is str
    assert choice["finish_reason"] in ("stop", "length")
    counts = [answer["usage"][f"{name}_tokens"] for name in ("prompt", "completion", "total")]
    assert counts == [counts[0], counts[1], counts[0] + counts[1]]
