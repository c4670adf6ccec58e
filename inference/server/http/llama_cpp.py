"""llama.cpp's API: `/infill` as llama.vim and llama.vscode use it, and `/props`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from importlib.metadata import version
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inference.server.http.asking import Asking, cached_tokens, sampling, session_of
from inference.server.http.bodies import (
    MAX_CHOICES,
    BodyReader,
    Count,
    Fields,
    Name,
    OtherFields,
    Seed,
    Share,
    StopTexts,
    Temperature,
    max_tokens,
    stop_texts,
)
from inference.server.http.errors import error_event
from inference.server.http.streaming import EVENTS, event, streamed
from protocol.messages import Completion, CompletionRequest, Snippet, StopRule

MAX_RESPONSE_FIELDS = 64

OTHERS = OtherFields(
    ignored=frozenset(
        {
            *("model", "samplers", "n_keep", "n_discard", "min_keep", "timings_per_token", "t_max_prompt_ms"),
            *(
                "n_cache_reuse",
                "post_sampling_probs",
                "penalty_prompt",
                "repeat_last_n",
                "mirostat_tau",
                "mirostat_eta",
            ),
            *("dynatemp_exponent", "xtc_threshold", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
        }
    ),
    neutral={
        "min_p": (0,),
        "typical_p": (1,),
        "tfs_z": (1,),
        "mirostat": (0,),
        "dynatemp_range": (0,),
        "xtc_probability": (0,),
        "dry_multiplier": (0,),
        "repeat_penalty": (1,),
        "presence_penalty": (0,),
        "frequency_penalty": (0,),
        "logit_bias": ([], {}),
        "grammar": ("",),
        "ignore_eos": (False,),
        "n_probs": (0,),
        "lora": ([],),
        "return_tokens": (False,),
        "return_progress": (False,),
    },
)


class ExtraInput(Struct, frozen=True):
    """A snippet of another file."""

    filename: str | None = None
    text: str | None = None


class InfillBody(Fields, frozen=True):
    """The fields of `/infill`. Its `prompt` is the text between the prefix and the cursor."""

    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    input_extra: tuple[ExtraInput, ...] = ()
    n_predict: Count | None = None
    n_indent: Annotated[int, Meta(ge=0)] = 0
    n_cmpl: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] = 1
    stop: StopTexts | None = None
    stream: bool = False
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    seed: Seed | None = None
    t_max_predict_ms: Annotated[int, Meta(ge=-1)] = 0
    cache_prompt: bool = True
    response_fields: Annotated[tuple[str, ...], Meta(max_length=MAX_RESPONSE_FIELDS)] = ()
    id_slot: int | None = None
    session: Name | None = None  # not llama.cpp's own


class LlamaCpp:
    """The handlers."""

    def __init__(self, asking: Asking, bodies: BodyReader) -> None:
        self._asking = asking
        self._bodies = bodies

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
                "build_info": f"midfill {version('midfill')}",
            }
        )

    async def infill(self, request: Request) -> Response:
        """One completion, or a list of `n_cmpl`, whole or as server-sent events."""
        body = await self._bodies.read(request, InfillBody, OTHERS)
        wanted = self._wanted(request, body)
        if body.stream:
            return await streamed(self._events(request, wanted, body), EVENTS, error_event)
        answers = []
        texts: dict[int, str] = {}
        async for piece in self._asking.pieces(request, wanted, body.n_cmpl):
            texts[piece.choice] = texts.get(piece.choice, "") + piece.text
            if piece.completion is not None:
                answers.append(self._ended(piece.choice, texts[piece.choice], piece.completion, body.response_fields))
        return JSONResponse(answers[0] if body.n_cmpl == 1 else answers)

    async def _events(self, request: Request, wanted: CompletionRequest, body: InfillBody) -> AsyncGenerator[bytes]:
        async for piece in self._asking.pieces(request, wanted, body.n_cmpl):
            if piece.completion is not None:
                yield event(self._ended(piece.choice, piece.text, piece.completion, body.response_fields))
            else:
                yield event(
                    _selected({"index": piece.choice, "content": piece.text, "stop": False}, body.response_fields)
                )

    def _wanted(self, request: Request, body: InfillBody) -> CompletionRequest:
        files = tuple(Snippet(extra.filename or "", extra.text or "") for extra in body.input_extra)
        slot = None if body.id_slot is None or body.id_slot < 0 else f"slot {body.id_slot}"
        session, limit = session_of(request, body.session, slot), max_tokens(body.n_predict)
        before = body.input_prefix + body.prompt
        return CompletionRequest(
            session,
            self._asking.around(session, before, body.input_suffix, files, ahead=limit == 0),
            limit,
            StopRule(body.n_indent),
            reuse=body.cache_prompt,
            stop_texts=stop_texts(body.stop),
            sampling=sampling(body.temperature, body.top_p, body.top_k, body.seed),
            max_decode_ms=max(0, body.t_max_predict_ms),
        )

    def _ended(self, choice: int, text: str, completion: Completion, selected: Sequence[str]) -> dict[str, Any]:
        usage = completion.usage
        whole = {
            "index": choice,
            "content": text,
            "model": self._asking.scheduler.status.model,
            "stop": True,
            "stop_type": {"length": "limit", "stop": "word"}.get(completion.finish_reason, "eos"),
            "truncated": False,
            "tokens_predicted": usage.generated_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": cached_tokens(usage.prompt_tokens, usage.recomputed_tokens),
            "timings": {
                "cache_n": cached_tokens(usage.prompt_tokens, usage.recomputed_tokens),
                **_timing("prompt", usage.recomputed_tokens, usage.prefill_ms),
                **_timing("predicted", usage.generated_tokens, usage.decode_ms),
            },
        }
        return _selected(whole, selected)


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
