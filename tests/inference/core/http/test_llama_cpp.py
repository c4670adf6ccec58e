from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from protocol.messages import CompletionRequest, Snippet, StopRule
from tests.inference.core.http.calls import AFTER, BEFORE, post, post_events, refusal
from tests.inference.serving import BEARER

PATH = "/infill"
PREFIX, LINE = BEFORE.rpartition("\n")[0] + "\n", BEFORE.rpartition("\n")[2]
BODY: dict[str, Any] = {"input_prefix": PREFIX, "prompt": LINE, "input_suffix": AFTER, "n_predict": 12}
TIMINGS = [f"timings/{phase}_{name}" for phase in ("prompt", "predicted") for name in ("n", "ms", "per_token_ms", "per_second")]


def test_response_fields_choose_what_is_answered(client: TestClient) -> None:
    wanted = ["content", *TIMINGS, "truncated", "tokens_cached"]
    answer = post(client, PATH, {**BODY, "response_fields": [*wanted, "no/such", "content/deeper"]})
    assert list(answer) == wanted
    assert answer["content"] == post(client, PATH, BODY)["content"]
    assert answer["timings/predicted_n"] == 12
    assert post(client, PATH, {**BODY, "response_fields": [""]}) == {}


def test_fields_decide_how_text_is_decoded(client: TestClient, asked: list[CompletionRequest]) -> None:
    extra = [{"filename": "b.py", "text": "b = 1\n", "time": 5}]
    body = {"input_extra": extra, "n_indent": 4, "t_max_predict_ms": 250, "id_slot": 0, "stop": ["\n\n"]}
    post(client, PATH, {**BODY, **body, "samplers": ["top_k"], "top_k": 40, "top_p": 0.9, "t_max_prompt_ms": 500})
    post(client, PATH, {**BODY, "id_slot": -1, "cache_prompt": False, "t_max_predict_ms": -1, "n_predict": -1})
    first, second = asked
    assert first.prompt.prefix + first.prompt.increment == BEFORE
    assert (first.prompt.suffix, first.prompt.context) == (AFTER, (Snippet("b.py", "b = 1\n"),))
    assert (first.stop, first.max_decode_ms, first.session) == (StopRule(indent=4), 250, "http/slot 0")
    assert (first.stop_texts, first.sampling) == (("\n\n",), None)
    assert (second.session, second.reuse, second.max_decode_ms, second.max_tokens) == ("anonymous", False, 0, 128)


@pytest.mark.parametrize(("line", "characters", "columns"), [("\t\tx = ", 2, 8), ("    x", 4, 4), (" \tx", 2, 4), ("x", 3, 3)])
def test_indentation_in_characters_becomes_columns(
    client: TestClient, asked: list[CompletionRequest], line: str, characters: int, columns: int
) -> None:
    post(client, PATH, {**BODY, "prompt": line, "n_indent": characters})
    assert asked[0].stop == StopRule(indent=columns)


def test_nothing_predicted_warms_the_prompt(client: TestClient) -> None:
    body = {**BODY, "input_prefix": "# warm\n" * 40 + PREFIX, "id_slot": 3}
    warmed = post(client, PATH, {**body, "n_predict": 0, "samplers": [], "t_max_prompt_ms": 1, "t_max_predict_ms": 1})
    assert (warmed["content"], warmed["tokens_predicted"]) == ("", 0)
    assert post(client, PATH, body)["timings"]["prompt_n"] == 1


def test_files_sent_ahead_warm_the_next_prompt(client: TestClient) -> None:
    """llama.vim sends new chunks at rest, without any text around a cursor."""
    body = {**BODY, "input_prefix": "# chunks\n" * 40 + PREFIX, "id_slot": 4}
    post(client, PATH, body)
    extra = {"input_extra": [{"filename": "b.py", "text": "def g():\n    return 2\n" * 10}]}
    empty = {"input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "response_fields": [""]}
    assert post(client, PATH, {**body, **extra, **empty}) == {}
    increment = len("# chunks\n" * 7 + LINE)  # it is not sent ahead
    assert post(client, PATH, {**body, **extra})["timings"]["prompt_n"] <= increment
    assert post(client, PATH, {**body, **extra, "prompt": LINE + "x"})["timings"]["prompt_n"] <= 3


def test_several_completions_are_a_list(client: TestClient) -> None:
    answers = post(client, PATH, {**BODY, "n_cmpl": 3})
    assert [answer["index"] for answer in answers] == [0, 1, 2]
    assert len({answer["content"] for answer in answers}) == 3


def test_answers_tell_the_context_as_llama_vscode_reads_it(client: TestClient) -> None:
    answer = post(client, PATH, BODY)
    context = client.get("/props", headers=BEARER).json()["default_generation_settings"]["n_ctx"]  # of a loaded model
    assert answer["generation_settings"]["n_ctx"] == context > 0


def test_stream_ends_with_stop_and_timings(client: TestClient) -> None:
    *growing, last = post_events(client, PATH, {**BODY, "stream": True, "prompt": LINE + "y"})
    assert {(event["stop"], event["index"]) for event in growing} == {(False, 0)}
    assert (last["stop"], last["stop_type"], last["tokens_predicted"]) == (True, "limit", 12)
    whole = post(client, PATH, {**BODY, "prompt": LINE + "y"})
    assert "".join(event["content"] for event in [*growing, last]) == whole["content"]
    stop = whole["content"][2:4]
    assert post(client, PATH, {**BODY, "prompt": LINE + "y", "stop": [stop]})["stop_type"] == "word"


def test_props_name_the_model(client: TestClient) -> None:
    post(client, PATH, BODY)
    props = client.get("/props").json()
    assert (props["model_path"], props["default_generation_settings"]["n_ctx"]) == ("tiny", 2048)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grammar": "root ::= [a-z]"}, "grammar is 'root ::= [a-z]'"),
        ({"lora": [{"id": 0, "scale": 0.5}]}, "lora is"),
        ({"repeat_penalty": 1.1}, "repeat_penalty is 1.1: only 1 is supported"),
        ({"n_cmpl": 17}, "`$.n_cmpl`"),
        ({"n_indent": -1}, "`$.n_indent`"),
        ({"id_slot": "0"}, "`$.id_slot`"),
        ({"response_fields": ["x"] * 65}, "`$.response_fields`"),
        ({"input_extra": [{}] * 1025}, "`$.input_extra`"),
        ({"json_schema": {}}, "json_schema is not supported"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(client: TestClient, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(client, PATH, {**BODY, **fields})
