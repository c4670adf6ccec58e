"""The APIs of OpenAI, `/v1/completions` and `/v1/models`, and of Mistral, `/v1/fim/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inference.core.http.bodies import (
    MAX_CHOICES,
    Count,
    DecodingFields,
    Fields,
    Name,
    OtherFields,
    Seed,
    line_end_of,
    max_tokens,
)
from inference.core.http.requests import NO_PROMPT, NO_STOP, Api, Asking, TextPiece, cached_tokens, session_of, whole
from inference.core.http.responses import DONE, EVENTS, error_event, event, streamed
from protocol.messages import MAX_TOP_LOGPROBS, Completion, CompletionRequest, Prompt

MAX_PROMPTS = 32
MAX_TEXTS = 64  # choices of all prompts

OTHERS = OtherFields(
    ignored=frozenset(
        {
            *("model", "metadata", "service_tier", "store", "safety_identifier", "prompt_cache_key"),
            *("prompt_cache_retention", "cache_prompt", "cache_salt", "priority"),
        }
    ),
    neutral={
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "repetition_penalty": (1,),
        "logit_bias": ({},),
        "min_p": (0,),
        "min_tokens": (0,),
        "ignore_eos": (False,),
        "use_beam_search": (False,),
        "skip_special_tokens": (True,),
    },
)


class StreamOptions(Fields, frozen=True):
    """The chunks of a stream besides the texts."""

    include_usage: bool = False
    include_obfuscation: bool = False  # accepted: nothing is obfuscated


class CompletionsBody(DecodingFields, frozen=True, kw_only=True):
    """The fields of `/v1/completions`."""

    prompt: str | tuple[str | int | tuple[int, ...], ...] = ""
    suffix: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] = 1
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    echo: bool = False
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    user: Name | None = None
    session: Name | None = None  # as `top_k` not OpenAI's own
    top_k: Count | None = None

    def prompts(self) -> list[str | tuple[int, ...]]:
        """The prompts, each as text or as token ids. Raises HTTPException for a list of both, or too many."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = tuple(item for item in self.prompt if isinstance(item, int))
        if ids and len(ids) == len(self.prompt):
            return [ids]
        kinds = {type(item) for item in self.prompt}
        prompts = [item for item in self.prompt if not isinstance(item, int)]
        if len(kinds) != 1 or () in prompts:
            raise _refused("prompt", "is neither a text, nor token ids, nor a list of texts or of lists of token ids")
        texts = max(self.n, self.best_of or 1)
        if len(prompts) > MAX_PROMPTS or len(prompts) * texts > MAX_TEXTS:
            limits = f"at most {MAX_PROMPTS} prompts and {MAX_TEXTS} choices are allowed"
            raise _refused("prompt", f"has {len(prompts)} prompts with {texts} choices each: {limits}")
        return prompts

    @property
    def ranked(self) -> int:
        """The number of texts of which the `n` best are wanted; 1 without a choice."""
        return self.best_of if self.best_of is not None and self.best_of > self.n else 1

    def check(self) -> None:
        """Raise HTTPException for fields that contradict each other."""
        if self.best_of is not None and self.best_of < self.n:
            raise _refused("best_of", f"is {self.best_of}: fewer than n, {self.n}")
        if self.ranked > 1 and self.temperature:
            raise _refused("best_of", f"is {self.best_of}: more than n, {self.n}, needs temperature 0")
        if self.echo and self.logprobs is not None:
            raise _refused("logprobs", f"is {self.logprobs}: with echo it is not supported")
        if self.ranked > 1 and self.logprobs is not None:
            raise _refused("logprobs", f"is {self.logprobs}: with a best_of of {self.best_of} it is not supported")
        if self.n > 1 and self.logprobs is not None and not self.temperature:
            raise _refused("logprobs", f"is {self.logprobs}: with n = {self.n} it needs a temperature above 0")
        if self.stream_options is not None and not self.stream:
            raise _refused("stream_options", "is only allowed with stream")
        if any(isinstance(prompt, tuple) for prompt in self.prompts()):
            if self.echo:
                raise _refused("echo", "is not supported with a prompt of token ids")
            if self.suffix:
                raise _refused("suffix", "is not supported with a prompt of token ids")


def _refused(name: str, why: str) -> HTTPException:
    return HTTPException(422, f"{name} {why} - at `$.{name}`")


@dataclass(frozen=True, slots=True)
class _Asked:
    """One HTTP request, and what it asks for."""

    asking: Asking
    request: Request
    body: CompletionsBody
    ended: list[Completion]  # of the choices so far

    async def pieces(self) -> AsyncGenerator[TextPiece]:
        """The pieces of every prompt's choices, which begin with the echo."""
        body = self.body
        for number, prompt in enumerate(body.prompts()):
            echoed, wanted = set[int](), self._wanted(prompt)
            line_end = line_end_of(prompt, body.suffix) if isinstance(prompt, str) and not wanted.prompt.marked else "\n"
            async for piece in self.asking.pieces(self.request, wanted, body.n, grows=body.stream, line_end=line_end):
                echo = prompt if body.echo and piece.choice not in echoed and isinstance(prompt, str) else ""
                echoed.add(piece.choice)
                if piece.completion is not None:
                    self.ended.append(piece.completion)
                yield TextPiece(number * body.n + piece.choice, echo + piece.text, piece.completion)

    def _wanted(self, prompt: str | tuple[int, ...]) -> CompletionRequest:
        body = self.body
        wanted = CompletionRequest(
            session_of(self.request, body.session, body.user),
            NO_PROMPT,
            max_tokens(body.max_tokens),
            NO_STOP,
            stop_texts=body.stop_texts(),
            sampling=body.sampling(body.top_k),
            top_logprobs=body.logprobs,
            best_of=body.ranked,
        )
        if isinstance(prompt, tuple):
            return replace(wanted, prompt=Prompt("", "", token_ids=prompt))
        if body.suffix:
            around = self.asking.around(wanted.session, prompt, body.suffix, repeatable=body.repeatable)
            return replace(wanted, prompt=around)
        return self.asking.rendered(wanted, prompt, repeatable=body.repeatable)


class OpenAI(Api):
    """The handlers. A `prompt` without `suffix` is a rendered prompt, or the text before the cursor."""

    @property
    def routes(self) -> list[Route]:
        """The paths of this API, except `/v1/completions`, which Tabby's has too."""
        return [Route("/v1/models", self.models)]

    async def models(self, _request: Request) -> Response:
        """The core's model."""
        created = int(self._started.timestamp())
        model = {"id": self._model, "object": "model", "created": created, "owned_by": "midfill"}
        return JSONResponse({"object": "list", "data": [model]})

    async def completions(self, request: Request, values: dict[str, Any]) -> Response:
        """The `n` choices of every prompt in these fields of a body, whole or as server-sent events."""
        body = self._bodies.converted(request, values, CompletionsBody, OTHERS)
        body.check()
        head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time()), "model": self._model}
        asked = _Asked(self._asking, request, body, [])
        if body.stream:
            return await streamed(_events(head, asked), EVENTS, error_event)
        completions = enumerate(await whole(asked.pieces()))
        choices = [_choice(TextPiece(index, ended.text, ended), body.logprobs) for index, ended in completions]
        return JSONResponse({**head, "choices": choices, "usage": usage_of(asked.ended)})


async def _events(head: dict[str, Any], asked: _Asked) -> AsyncGenerator[bytes]:
    options = asked.body.stream_options
    with_usage = options is not None and options.include_usage
    async for piece in asked.pieces():
        choice = _choice(piece, asked.body.logprobs)
        yield event({**head, "choices": [choice], **({"usage": None} if with_usage else {})})
    if with_usage:
        yield event({**head, "choices": [], "usage": usage_of(asked.ended)})
    yield DONE


def _choice(piece: TextPiece, logprobs: int | None) -> dict[str, Any]:
    """A choice with its text; the log-probabilities of a stream come all with its end."""
    ended = piece.completion
    reported = None if ended is None or logprobs is None else _logprobs(ended)
    reason = None if ended is None else finish_reason(ended)
    return {"index": piece.choice, "text": piece.text, "logprobs": reported, "finish_reason": reason}


def finish_reason(completion: Completion) -> str:
    """Why the text ended, in OpenAI's words."""
    return "length" if completion.finish_reason == "length" else "stop"


def usage_of(completions: Iterable[Completion]) -> dict[str, Any]:
    """The tokens of a response's choices, as OpenAI and Mistral name them."""
    usages = [completion.usage for completion in completions]
    prompt = sum(usage.prompt_tokens for usage in usages)
    generated = sum(usage.generated_tokens for usage in usages)
    cached = cached_tokens(prompt, sum(usage.recomputed_tokens for usage in usages))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _logprobs(completion: Completion) -> dict[str, Any]:
    texts = [token.text for token in completion.tokens]
    return {
        "tokens": texts,
        "token_logprobs": [token.logprob for token in completion.tokens],
        "top_logprobs": [dict(token.top) for token in completion.tokens],
        "text_offset": list(accumulate(map(len, texts), initial=0))[:-1],
    }


OTHERS_OF_MISTRAL = OtherFields(
    ignored=frozenset({"model", "metadata", "stream_options", "safe_prompt", "prompt_cache_key"}),
    neutral={"min_tokens": (0,), "frequency_penalty": (0,), "presence_penalty": (0,), "n": (1,)},
)


class FimBody(DecodingFields, frozen=True, kw_only=True):
    """The fields of `/v1/fim/completions`."""

    prompt: str
    suffix: str = ""
    stream: bool = False
    max_tokens: Count | None = None
    seed: Seed | None = msgspec.field(default=None, name="random_seed")
    session: Name | None = None  # as `user` not Mistral's own
    user: Name | None = None


class Mistral(Api):
    """The handlers. `prompt` is the text before the cursor."""

    @property
    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [Route("/v1/fim/completions", self.completions, methods=["POST"])]

    async def completions(self, request: Request) -> Response:
        """One choice, whole or as server-sent events."""
        body = await self._bodies.read(request, FimBody, OTHERS_OF_MISTRAL)
        session = session_of(request, body.session, body.user)
        wanted = CompletionRequest(
            session,
            self._asking.around(session, body.prompt, body.suffix, repeatable=body.repeatable),
            max_tokens(body.max_tokens),
            NO_STOP,
            stop_texts=body.stop_texts(),
            sampling=body.sampling(),
        )
        head = {
            "id": uuid.uuid4().hex,
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": self._model,
        }
        line_end = line_end_of(body.prompt, body.suffix)
        pieces = self._asking.pieces(request, wanted, grows=body.stream, line_end=line_end)
        if body.stream:
            return await streamed(self._events(head, pieces), EVENTS, error_event)
        (completion,) = await whole(pieces)
        message = {"role": "assistant", "content": completion.text, "tool_calls": None}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason(completion)}
        return JSONResponse({**head, "choices": [choice], "usage": usage_of([completion])})

    async def _events(self, head: dict[str, Any], pieces: AsyncGenerator[TextPiece]) -> AsyncGenerator[bytes]:
        async for piece in pieces:
            reason = None if piece.completion is None else finish_reason(piece.completion)
            delta = {"role": "assistant", "content": piece.text}
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            if piece.completion is None:
                yield event({**head, "choices": choices})
            else:
                yield event({**head, "choices": choices, "usage": usage_of([piece.completion])})
        yield DONE
