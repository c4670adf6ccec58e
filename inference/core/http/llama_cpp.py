"""llama.cpp's API: `/infill` as llama.vim and llama.vscode use it, and `/props`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inference.core.http.bodies import MAX_CHOICES, Count, DecodingFields, Name, line_end_of, max_tokens
from inference.core.http.requests import Api, TextPiece, cached_tokens, session_of, whole
from inference.core.http.responses import EVENTS, error_event, event, streamed
from protocol.installation import own_version
from protocol.messages import MAX_SNIPPETS, Completion, CompletionRequest, Snippet, StopRule
from protocol.stopping import columns

MAX_RESPONSE_FIELDS = 64


class ExtraInput(Struct, frozen=True):
    """A snippet of another file."""

    filename: str | None = None
    text: str | None = None


class InfillBody(DecodingFields, frozen=True, kw_only=True):
    """The fields of `/infill`. Its `prompt` is the text between the prefix and the cursor."""

    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    input_extra: Annotated[tuple[ExtraInput, ...], Meta(max_length=MAX_SNIPPETS)] = ()
    n_predict: Count | None = None
    n_indent: Annotated[int, Meta(ge=0)] = 0
    n_cmpl: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] = 1
    stream: bool = False
    t_max_predict_ms: Annotated[int, Meta(ge=-1)] = 0
    cache_prompt: bool = True
    response_fields: Annotated[tuple[str, ...], Meta(max_length=MAX_RESPONSE_FIELDS)] = ()
    id_slot: int | None = None
    session: Name | None = None  # not llama.cpp's own


class LlamaCpp(Api):
    """The handlers."""

    @property
    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [Route("/infill", self.infill, methods=["POST"]), Route("/props", self.props)]

    async def props(self, _request: Request) -> Response:
        """The model and its context; `n_ctx` is 0 until the model is loaded."""
        status = self._asking.scheduler.status
        return JSONResponse(
            {
                "default_generation_settings": {"n_ctx": status.context_tokens, "params": {"temperature": 0.0}},
                "total_slots": 1,
                "model_path": status.model,
                "model_alias": status.model,
                "build_info": f"midfill {own_version()}",
            }
        )

    async def infill(self, request: Request) -> Response:
        """One completion, or a list of `n_cmpl`, whole or as server-sent events."""
        body = await self._bodies.read(request, InfillBody)
        line_end = line_end_of(body.input_prefix + body.prompt, body.input_suffix)
        wanted = self._wanted(request, body)
        pieces = self._asking.pieces(request, wanted, body.n_cmpl, grows=body.stream, line_end=line_end)
        if body.stream:
            return await streamed(self._events(pieces, body.response_fields), EVENTS, error_event)
        answers = [
            _selected(self._ended(choice, ended.text, ended), body.response_fields)
            for choice, ended in enumerate(await whole(pieces))
        ]
        return JSONResponse(answers[0] if body.n_cmpl == 1 else answers)

    async def _events(self, pieces: AsyncGenerator[TextPiece], selected: Sequence[str]) -> AsyncGenerator[bytes]:
        async for piece in pieces:
            if piece.completion is None:
                answer = {"index": piece.choice, "content": piece.text, "stop": False}
            else:
                answer = self._ended(piece.choice, piece.text, piece.completion)
            yield event(_selected(answer, selected))

    def _wanted(self, request: Request, body: InfillBody) -> CompletionRequest:
        files = tuple(Snippet(extra.filename or "", extra.text or "") for extra in body.input_extra)
        slot = None if body.id_slot is None or body.id_slot < 0 else f"slot {body.id_slot}"
        session, limit = session_of(request, body.session, slot), max_tokens(body.n_predict)
        before, after = body.input_prefix + body.prompt, body.input_suffix
        repeatable = bool(before or after) and (body.repeatable or not body.cache_prompt)
        return CompletionRequest(
            session,
            self._asking.around(request, session, before, after, files, repeatable=repeatable, prefetch=limit == 0),
            limit,
            StopRule(_columns_of_indent(before, body.n_indent)),
            reuse=body.cache_prompt,
            stop_texts=body.stop_texts(),
            sampling=body.sampling(),
            max_decode_ms=max(0, body.t_max_predict_ms),
        )

    def _ended(self, choice: int, text: str, completion: Completion) -> dict[str, Any]:
        usage = completion.usage
        return {
            "index": choice,
            "content": text,
            "model": self._model,
            "stop": True,
            "stop_type": {"length": "limit", "stop": "word"}.get(completion.finish_reason, "eos"),
            "truncated": False,
            "generation_settings": {"n_ctx": self._asking.scheduler.status.context_tokens},  # llama.vscode needs it
            "tokens_predicted": usage.generated_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": cached_tokens(usage.prompt_tokens, usage.recomputed_tokens),
            "timings": {
                "cache_n": cached_tokens(usage.prompt_tokens, usage.recomputed_tokens),
                **_timing("prompt", usage.recomputed_tokens, usage.prefill_ms),
                **_timing("predicted", usage.generated_tokens, usage.decode_ms),
            },
        }


def _columns_of_indent(before: str, characters: int) -> int:
    """The columns of `n_indent`, which counts characters of the white space that the cursor's line begins with."""
    beginning = before[before.rfind("\n") + 1 :][:characters]
    return columns(beginning) if len(beginning) == characters and not beginning.strip() else characters


def _timing(phase: str, tokens: int, milliseconds: float) -> dict[str, float]:
    return {
        f"{phase}_n": tokens,
        f"{phase}_ms": milliseconds,
        f"{phase}_per_token_ms": milliseconds / tokens if tokens else 0.0,
        f"{phase}_per_second": 1e3 * tokens / milliseconds if milliseconds else 0.0,
    }


def _selected(answer: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The fields of an answer that are asked for by `response_fields`, by their paths; all of them if none is."""
    if not fields:
        return answer
    selected: dict[str, Any] = {}
    for path in fields:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            selected[path] = value
    return selected
