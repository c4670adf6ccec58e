"""How one request's tokens are chosen: greedily, or drawn with its seed, and what it reports of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from inference.backends.chunk import Chunk, Draw
from inference.backends.model import Choice
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadInput
from protocol.messages import (
    MAX_ALTERNATIVES,
    MAX_STOP_CHARS,
    MAX_STOP_TEXTS,
    MAX_TOP_LOGPROBS,
    CompletionRequest,
    TokenLogprob,
)


class Drawing:
    """Adds to each chunk how its next token is chosen; one per run of a request."""

    def __init__(self, request: CompletionRequest) -> None:
        self._sampling = request.sampling
        self._top = request.top_logprobs
        self._random = random.Random(None if request.sampling is None else request.sampling.seed)

    @property
    def is_greedy(self) -> bool:
        """Whether only the most probable token counts, which is what a forward can verify a draft with."""
        return self._sampling is None and not self._top

    def of(self, chunk: Chunk, top: int = 0) -> Chunk:
        """The chunk, with how its next token is chosen, and at least `top` of the most probable tokens returned."""
        if self.is_greedy and not top:
            return chunk
        sampling = self._sampling
        point = self._random.random()
        draw = None if sampling is None else Draw(point, sampling.temperature, sampling.top_p, sampling.top_k)
        return replace(chunk, draw=draw, top=max(top, self._top or 0))

    def told(self, choice: Choice, text: str, tokenizer: TextTokenizer) -> TokenLogprob:
        """What the completion reports of a chosen token that added `text`."""
        top = [
            ((tokenizer.bytes_of(id_) or b"").decode("utf-8", "replace"), logprob)
            for id_, logprob in choice.top[: self._top]
        ]
        return TokenLogprob(text, choice.logprob, tuple(top))


def spelling(tokens: Sequence[TokenLogprob], text: str) -> tuple[TokenLogprob, ...]:
    """The leading tokens that `text` consists of: a stop rule may have cut the text."""
    starts = accumulate((len(token.text) for token in tokens), initial=0)
    return tuple(token for token, start in zip(tokens, starts, strict=False) if start < len(text))


def check_choosing(request: CompletionRequest) -> None:
    """Raise BadInput, with the offending value, if the request's tokens cannot be chosen or ended as it wants."""
    if request.max_tokens < 0:
        raise BadInput(f"max_tokens must be 0 or more, not {request.max_tokens}")
    if not 0 <= request.alternatives <= MAX_ALTERNATIVES:
        raise BadInput(f"alternatives must be between 0 and {MAX_ALTERNATIVES}, not {request.alternatives}")
    if not 1 <= request.best_of <= MAX_ALTERNATIVES + 1:
        raise BadInput(f"best_of must be between 1 and {MAX_ALTERNATIVES + 1}, not {request.best_of}")
    sampling, top = request.sampling, request.top_logprobs
    if top is not None and not 0 <= top <= MAX_TOP_LOGPROBS:
        raise BadInput(f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}, not {top}")
    if request.max_decode_ms < 0:
        raise BadInput(f"max_decode_ms must be 0 or more, not {request.max_decode_ms}")
    if not 0 <= request.min_probability <= 1:
        raise BadInput(f"min_probability must be between 0 and 1, not {request.min_probability}")
    if len(request.stop_texts) > MAX_STOP_TEXTS:
        raise BadInput(f"stop_texts must hold at most {MAX_STOP_TEXTS} texts, not {len(request.stop_texts)}")
    wrong = next((stop for stop in request.stop_texts if not 0 < len(stop) <= MAX_STOP_CHARS), None)
    if wrong is not None:
        raise BadInput(f"a stop text must have 1 to {MAX_STOP_CHARS} characters, not {len(wrong)}")
    if sampling is None:
        return
    if not 0 < sampling.temperature < float("inf"):
        raise BadInput(f"temperature must be above 0 to sample, not {sampling.temperature}")
    if not 0 < sampling.top_p <= 1:
        raise BadInput(f"top_p must be above 0 and at most 1, not {sampling.top_p}")
    if sampling.top_k < 0:
        raise BadInput(f"top_k must be 0 or more, not {sampling.top_k}")
    if request.alternatives:
        raise BadInput("alternatives are greedy, and cannot be sampled")
    if request.best_of > 1:
        raise BadInput("the best of several texts is chosen among greedy ones, not sampled ones")
