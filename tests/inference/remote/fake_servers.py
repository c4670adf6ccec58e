"""Servers that speak llama-server's or OpenAI's interface over a socket, with a scripted model and counted caches."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from inference.text.tokenization import TextTokenizer, read_tokenizer

SCRIPT = "alpha beta\n    gamma\nend"
"""What the model writes unless a constraint forbids it."""
FORBIDDEN = "zzz"
LOGPROB = -0.5
OTHERS = 5  # tokens reported as the next probable ones
PATIENCE_S = 30.0


@dataclass
class FakeServer:
    """The state of both kinds of servers, and what they were asked. Tests change it from their own thread."""

    tokenizer: TextTokenizer
    slots: int = 2
    context: int = 600
    key: str = ""
    model: str = "fake"
    script: str = SCRIPT
    obeys: tuple[str, ...] = ("grammar",)  # the fields by which it can be constrained
    reports_cached: bool = True
    obeys_salts: bool = True
    block_tokens: int = 16  # of which the OpenAI server keeps whole ones
    metrics: str = ""  # what it answers to /metrics, if anything
    statuses: list[int] = field(default_factory=list)  # of the next answers to completions
    loading: int = 0  # answers to say that the model loads
    hold_after: int | None = None  # tokens after which a stream waits for `go_on`
    seconds_per_token: float = 0.0
    break_after: int | None = None  # tokens after which it closes the connection
    tokens_of: Callable[[str], list[int]] | None = None
    resident: dict[object, list[int]] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    erased: list[int] = field(default_factory=list)
    at_work: int = 0  # streams
    most_at_work: int = 0
    can_erase: bool = True
    disconnects: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    streaming: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go_on: threading.Event = field(default_factory=threading.Event)

    def cached(self, place: object, prompt: list[int], *, reuse: bool) -> int:
        """How many tokens of the prompt were resident; then all of them are."""
        before = self.resident.get(place, []) if reuse else []
        shared = next((i for i, pair in enumerate(zip(before, prompt, strict=False)) if pair[0] != pair[1]), None)
        shared = min(len(before), len(prompt)) if shared is None else shared
        self.resident[place] = prompt
        return min(shared, len(prompt) - 1)

    def text(self, typed: str) -> str:
        """What the model writes if it must begin with `typed`."""
        return self.script if self.script.startswith(typed) else typed + FORBIDDEN

    def refusal(self, request: Request) -> Response | None:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "invalid api key"}}, 401)
        if self.statuses and request.url.path.endswith(("/completion", "/completions")):
            status = self.statuses.pop(0)
            if status == 200:
                return None
            return JSONResponse({"error": {"message": f"status {status}"}}, status)
        return None

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        text = body.get("content", body.get("prompt"))
        tokens = self.tokens_of(text) if self.tokens_of else self.tokenizer.encode(text).tolist()
        return self.refusal(request) or JSONResponse({"tokens": tokens})

    async def pace(self, number: int) -> None:
        """Wait, or break off, before the token of this number."""
        await asyncio.sleep(self.seconds_per_token)
        if number == self.break_after:
            raise ConnectionAbortedError
        if number == self.hold_after:
            self.streaming.release()
            while not self.go_on.is_set():
                await asyncio.sleep(0.005)

    def answer(self, events: AsyncIterator[dict[str, Any]]) -> Response:
        async def lines() -> AsyncIterator[str]:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
            try:
                async for event in events:
                    yield f"data: {json.dumps(event)}\n\n"
            except asyncio.CancelledError:
                self.disconnects.release()
                raise
            finally:
                self.at_work -= 1

        return StreamingResponse(lines(), media_type="text/event-stream")

    def top(self) -> list[int]:
        return [id_ for id_ in range(self.tokenizer.vocabulary_size) if self.tokenizer.is_text(id_)][40 : 40 + OTHERS]


def llama_server(state: FakeServer) -> Starlette:
    """llama-server's interface."""

    async def props(request: Request) -> Response:
        if state.loading:
            state.loading -= 1
            return JSONResponse({"error": {"message": "Loading model"}}, 503)
        if (refused := state.refusal(request)) is not None:
            return refused
        settings = {"n_ctx": state.context, "params": {}}
        return JSONResponse({"total_slots": state.slots, "model_path": state.model, "default_generation_settings": settings})

    async def completion(request: Request) -> Response:
        body = await request.json()
        state.bodies.append(body)
        if (refused := state.refusal(request)) is not None:
            return refused
        return state.answer(generate(body))

    async def generate(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        cached = state.cached(body.get("id_slot", "any"), body["prompt"], reuse=body["cache_prompt"])
        timings = {"cache_n": cached, "prompt_n": len(body["prompt"]) - cached}
        yield {"content": "", "tokens": [0], "stop": False, "prompt_progress": {"cache": cached, "total": 1}}
        text = state.text(_typed_in_grammar(body.get("grammar", "")))
        stop, ids = _cut(text, body["stop"]), state.tokenizer.encode(text).tolist()
        written, kind = "", "eos"
        for number, id_ in enumerate(ids):
            if number == body["n_predict"]:
                kind = "limit"
                break
            await state.pace(number)
            written += (state.tokenizer.bytes_of(id_) or b"").decode()
            content = written[: len(stop)]
            top = [{"id": other, "logprob": -2.0 - rank} for rank, other in enumerate(state.top())]
            known = {"id": id_, "logprob": LOGPROB, "top_logprobs": [{"id": id_, "logprob": LOGPROB}, *top]}
            sent = content[len(written) - len((state.tokenizer.bytes_of(id_) or b"").decode()) :]
            yield {
                "content": sent,
                "tokens": [id_],
                "stop": False,
                "timings": timings,
                "completion_probabilities": [known][: body["n_probs"]],
            }
            if len(written) > len(stop):
                kind = "word"
                break
        yield {"content": "", "tokens": [], "stop": True, "stop_type": kind, "timings": timings}

    async def erase(request: Request) -> Response:
        if not state.can_erase:
            return JSONResponse({"error": {"message": "start the server with --slot-save-path"}}, 501)
        state.erased.append(int(request.path_params["slot"]))
        state.resident.pop(state.erased[-1], None)
        return JSONResponse({})

    return Starlette(
        routes=[
            Route("/props", props),
            Route("/tokenize", state.tokenize, methods=["POST"]),
            Route("/completion", completion, methods=["POST"]),
            Route("/slots/{slot}", erase, methods=["POST"]),
        ]
    )


def openai_server(state: FakeServer, *, tokenizes: bool = True) -> Starlette:
    """vLLM's interface, or SGLang's, by what the state obeys."""

    async def models(request: Request) -> Response:
        offered = [{"id": name, "root": name, "max_model_len": state.context} for name in state.model.split(",")]
        return state.refusal(request) or JSONResponse({"object": "list", "data": offered})

    async def completions(request: Request) -> Response:
        body = await request.json()
        state.bodies.append(body)
        state.headers.append(dict(request.headers))
        if (refused := state.refusal(request)) is not None:
            return refused
        if body["model"] not in state.model.split(","):
            return JSONResponse({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
        if body["max_tokens"] < 1:
            return JSONResponse({"error": {"message": "max_tokens must be at least 1"}}, 400)
        if not body["stream"]:
            return JSONResponse({"choices": [{"text": state.text(_typed(body)), "finish_reason": "length"}]})
        if isinstance(body["prompt"], str):  # of another client than midfill
            body["prompt"] = state.tokenizer.encode(body["prompt"]).tolist()
            return state.answer(generate(body, "text"))
        place = (body.get("cache_salt", "") if state.obeys_salts else "") + request.headers["x-session-id"]
        return state.answer(generate(body, place))

    def _typed(body: dict[str, Any]) -> str:
        for name in state.obeys:
            if name == "grammar" and name in body:
                return _typed_in_grammar(body[name])
            regex = body.get(name, {}).get("regex", "") if name == "structured_outputs" else body.get(name, "")
            if regex:
                assert re.compile(regex)
                return re.sub(r"\\([^n])", r"\1", regex.removesuffix(r"[\s\S]*")).replace("\\n", "\n")
        return ""

    async def generate(body: dict[str, Any], place: str) -> AsyncIterator[dict[str, Any]]:
        cached = state.cached(place, body["prompt"], reuse=True)
        text = state.text(_typed(body))
        ids = state.tokenizer.encode(_cut(text, body.get("stop", []))).tolist()
        reason, stop_reason = "stop", "\n" if _cut(text, body.get("stop", [])) != text else None
        for number, id_ in enumerate(ids):
            if number == body["max_tokens"]:
                reason, stop_reason = "length", None
                break
            await state.pace(number)
            top = {f"token_id:{other}": -2.0 - rank for rank, other in enumerate(state.top())}
            logprobs = {
                "tokens": [f"token_id:{id_}"],
                "token_logprobs": [LOGPROB],
                "top_logprobs": [{f"token_id:{id_}": LOGPROB, **top}],
            }
            piece = (state.tokenizer.bytes_of(id_) or b"").decode()
            yield {"choices": [{"index": 0, "text": piece, "token_ids": [id_], "logprobs": logprobs}]}
        yield {"choices": [{"index": 0, "text": "", "finish_reason": reason, "stop_reason": stop_reason}]}
        details = {"cached_tokens": cached - cached % state.block_tokens} if state.reports_cached else None
        counts = {"prompt_tokens": len(body["prompt"]), "completion_tokens": min(len(ids), body["max_tokens"])}
        yield {"choices": [], "usage": {**counts, "prompt_tokens_details": details}}

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(state.metrics, 200 if state.metrics else 404)

    async def health(request: Request) -> Response:
        return PlainTextResponse("")

    routes = [Route("/v1/models", models), Route("/v1/completions", completions, methods=["POST"])]
    routes += [Route("/metrics", metrics), Route("/health", health)]
    if tokenizes:
        routes.append(Route("/tokenize", state.tokenize, methods=["POST"]))
    return Starlette(routes=routes)


def _cut(text: str, stops: list[str]) -> str:
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def _typed_in_grammar(grammar: str) -> str:
    found = re.match(r'root ::= "((?:[^"\\]|\\.)*)" \[\^\\x00\]\*$', grammar, re.DOTALL)
    return json.loads(f'"{found.group(1)}"', strict=False) if found else ""


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until the server should exit. uvicorn leaves the connections open that it accepts while it ends."""
    await server.serve(sockets=[listener])
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)


@contextmanager
def serving(app: Starlette, port: int = 0) -> Iterator[str]:
    """The URL of an application that listens until the block ends; connections in progress are cut then."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=asyncio.run, args=[_serve(server, listener)], daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


if __name__ == "__main__":  # KIND PORT TOKENIZER_FOLDER, for benches that start a server
    kind, port, folder = sys.argv[1:]
    fake = FakeServer(read_tokenizer(Path(folder) / "tokenizer.json"), slots=4, context=4096, model=folder)
    app = llama_server(fake) if kind == "llama-server" else openai_server(fake)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="critical")
