"""How one request's tokens are chosen: greedily, or drawn with its seed, and what it reports of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from inference.backends.chunk import Chunk, Draw
from inference.backends.model import Choice
from inference.text.tokenization import TextTokenizer
from protocol.messages import CompletionRequest, TokenLogprob


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
