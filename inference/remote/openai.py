"""Speaks OpenAI's `/v1/completions` with token ids, and the extensions of vLLM and SGLang that midfill needs."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from inference.remote.llama_server import grammar
from inference.remote.server import EndReason, GenerationQuery, HttpConnection, NotServed, Piece, ServerFacts, Token, Tokenized
from inference.text.token_ids import packed
from protocol.errors import BadInput, EngineUnavailable
from protocol.messages import Sampling

DEFAULT_CAPACITY = 64
"""Requests at work together: such servers batch, and queue what exceeds their own limit."""
DEFAULT_CONTEXT_TOKENS = 4096
BLOCK_TOKENS = 16
"""The size of vLLM's blocks of KV, by default."""
PROBE = "zq\n"
"""A text that no model begins with unless it is forced to."""
PROBE_TOKENS = 8
TOKEN_ID = "token_id:"
MOST_TOPS = 20
"""vLLM reports no more log-probabilities by default, and refuses requests for more."""

NEUTRAL = {"repetition_penalty": 1.0, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Where a request leaves these out, vLLM takes them from the model's `generation_config.json`."""

_PREFILL_TOKENS = 1  # these servers refuse max_tokens = 0
ALL_TOKENS = -1  # as top_k; some servers refuse 0

Constraint = Callable[[str], Mapping[str, Any]]

log = logging.getLogger(__name__)


def _regex(typed: str) -> str:
    """A regular expression of all texts that begin with `typed`."""
    return re.escape(typed).replace("\\\n", "\\n").replace("\\\t", "\\t").replace("\\\r", "\\r") + r"[\s\S]*"


CONSTRAINTS: dict[str, Constraint] = {
    "structured_outputs": lambda typed: {"structured_outputs": {"regex": _regex(typed)}},  # vLLM
    "guided_regex": lambda typed: {"guided_regex": _regex(typed)},  # vLLM before 0.12
    "regex": lambda typed: {"regex": _regex(typed)},  # SGLang
    "grammar": lambda typed: {"grammar": grammar(typed)},  # llama.cpp
}
"""The fields by which servers force the first bytes of a text. Servers ignore fields that they do not know."""


class _Model(msgspec.Struct, frozen=True):
    id: str
    root: str | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...] = ()


class _Logprobs(msgspec.Struct, frozen=True):
    tokens: tuple[str, ...] = ()
    token_logprobs: tuple[float | None, ...] = ()
    top_logprobs: tuple[dict[str, float | None] | None, ...] | None = None


class _Choice(msgspec.Struct, frozen=True):
    text: str = ""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: _Logprobs | None = None
    token_ids: tuple[int, ...] | None = None


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: Any = None


@dataclass(slots=True)
class OpenAIServer:
    """One server with an OpenAI-compatible API that takes token ids; see `ModelServer`."""

    _connection: HttpConnection
    _session_header: str  # names the session, so that a router keeps it on its server
    _wanted: str = ""  # chooses among several models that the server offers; empty takes the first
    _capacity: int = 0  # 0 is DEFAULT_CAPACITY
    _model: str = ""
    _constraint: Constraint | None = None

    async def facts(self) -> ServerFacts:
        chosen = self._choose((await self._connection.get("/v1/models", _Models)).data)
        self._model = chosen.id
        self._constraint = await self._find_constraint()
        return ServerFacts(
            name=chosen.id,
            model_places=tuple(dict.fromkeys(filter(None, (chosen.root, chosen.id)))),
            context_tokens=chosen.max_model_len or DEFAULT_CONTEXT_TOKENS,
            capacity=self._capacity or DEFAULT_CAPACITY,
            block_tokens=BLOCK_TOKENS,
            can_constrain=self._constraint is not None,
        )

    async def tokenize(self, text: str) -> list[int] | None:
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        try:
            return (await self._connection.post("/tokenize", body, Tokenized)).tokens
        except (NotServed, BadInput):  # OpenAI's API has none; vLLM and SGLang do
            return None

    async def stream(self, query: GenerationQuery) -> AsyncGenerator[Piece]:
        body = self._body(query)
        headers = {self._session_header: query.session}
        async with self._connection.events("/v1/completions", body, headers) as events:
            async for data in events:
                event = self._connection.decode(data, _Event)
                if event.error is not None:
                    raise EngineUnavailable(f"{self._connection.address}: {event.error}")
                yield _piece(event, prefill_only=query.max_tokens == 0)

    async def erase(self, slot: int) -> bool:  # noqa: ARG002 - such servers have no slots
        return False

    async def aclose(self) -> None:
        await self._connection.aclose()

    def _choose(self, offered: tuple[_Model, ...]) -> _Model:
        if not offered:
            raise EngineUnavailable(f"{self._connection.address} offers no model")
        if len(offered) == 1 or not self._wanted:
            return offered[0]
        for model in offered:
            if self._wanted in (model.id, model.root):
                return model
        names = ", ".join(model.id for model in offered)
        raise BadInput(f"{self._connection.address} offers no model {self._wanted!r}, but {names}")

    async def _find_constraint(self) -> Constraint | None:
        """The first of CONSTRAINTS that the server obeys.

        Raises:
            BadInput: the server refuses prompts of token ids, as some routers do.
        """
        body = self._body(GenerationQuery(token_ids=packed([0]), max_tokens=PROBE_TOKENS, session="probe")) | {"stream": False}
        del body["stream_options"]
        for name, constraint in CONSTRAINTS.items():
            try:
                answer = await self._connection.post("/v1/completions", {**body, **constraint(PROBE)}, _Event)
            except (BadInput, NotServed) as error:
                log.info("%s does not take %s: %s", self._connection.address, name, error)
                continue
            if answer.choices and answer.choices[0].text.startswith(PROBE):
                return constraint
        await self._connection.post("/v1/completions", body, _Event)
        log.warning("%s cannot force the first bytes of a text: token healing is off", self._connection.address)
        return None

    def _body(self, query: GenerationQuery) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": query.token_ids.tolist(),
            "max_tokens": query.max_tokens or _PREFILL_TOKENS,
            **NEUTRAL,
            **_sampling(query.sampling),
            "logprobs": min(query.top, MOST_TOPS),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if query.stops:
            body["stop"] = query.stops
        if query.end_ids:
            body["stop_token_ids"] = query.end_ids
        if query.typed is not None and self._constraint is not None:
            body.update(self._constraint(query.typed))
        if not query.reuse:
            body["cache_salt"] = secrets.token_hex(8)
        return body


def _sampling(sampling: Sampling | None) -> dict[str, Any]:
    if sampling is None:
        return {"temperature": 0}
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or ALL_TOKENS,
        "seed": sampling.seed,
    }


def _piece(event: _Event, *, prefill_only: bool) -> Piece:
    details = event.usage.prompt_tokens_details if event.usage else None
    cached = details.cached_tokens if details else None
    if not event.choices:
        return Piece(cached_tokens=cached)
    choice = event.choices[0]
    end: EndReason | None = None
    if choice.finish_reason is not None:
        is_word = isinstance(choice.stop_reason, str)
        end = "length" if choice.finish_reason == "length" else "stop" if is_word else "eos"
    if prefill_only:
        return Piece(end=end, cached_tokens=cached)
    return Piece(choice.text, _tokens(choice), end, cached)


def _tokens(choice: _Choice) -> tuple[Token, ...]:
    found = choice.logprobs or _Logprobs()
    ids: tuple[int | None, ...] = choice.token_ids or tuple(_id_of(token) for token in found.tokens)
    tops = found.top_logprobs or ()
    return tuple(Token(id_, _at(found.token_logprobs, index), _top(_at(tops, index))) for index, id_ in enumerate(ids))


def _top(found: Mapping[str, float | None] | None) -> tuple[tuple[int, float], ...]:
    pairs = ((_id_of(name), logprob) for name, logprob in (found or {}).items())
    known = [(id_, logprob) for id_, logprob in pairs if id_ is not None and logprob is not None]
    return tuple(sorted(known, key=lambda entry: -entry[1]))


def _id_of(token: str) -> int | None:
    """The id in `token_id:123`, which vLLM writes on request; None for a token's text."""
    digits = token.removeprefix(TOKEN_ID)
    return int(digits) if token.startswith(TOKEN_ID) and digits.isdigit() else None


def _at(values: Any, index: int) -> Any:
    return values[index] if index < len(values) else None
