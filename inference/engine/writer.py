"""Writes texts behind a prompt: decodes tokens, and verifies drafts of them, until a stop or a limit ends the text."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from inference.backends.chunk import SHORT_TOKENS
from inference.backends.model import Choice
from inference.engine.active_request import OnText, Steps
from inference.engine.decoding.draft_history import DraftHistory
from inference.engine.decoding.drafters import Drafter, agreeing
from inference.engine.decoding.drawing import Drawing
from inference.engine.request_cost import RequestCost
from inference.engine.slot import Slot
from inference.text.healing import Healer, TypedBytes
from inference.text.prompts import TokenizedPrompt
from inference.text.stops import Stops
from inference.text.token_bytes import TextStream
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import TextTokenizer
from protocol.messages import CompletionRequest, FinishReason, TokenLogprob


@dataclass(slots=True)
class GrowingText:
    """A text that is being generated, and what its generation needs."""

    typed: TypedBytes  # bytes that its first tokens must spell; not part of the text
    stream: TextStream
    cost: RequestCost
    drafter: Drafter | None = None
    top: int = 0  # number of the most probable tokens to note in each place, the chosen one included
    on_text: OnText | None = None
    decoding_since: float | None = None  # by time.perf_counter
    token_ids: TokenIds = field(default_factory=packed)  # generated so far, including those of typed bytes
    chosen: list[Choice] = field(default_factory=list)  # the same, and a token that ended the text without being text
    logprobs: list[TokenLogprob] = field(default_factory=list)  # of the text's tokens, if the request wants them

    def tell(self, stops: Stops) -> None:
        """Pass on what no stop can take away."""
        if self.on_text is not None:
            self.on_text(self.stream.text[: stops.settled(self.stream.text)])

    def is_late(self, limit_ms: int) -> bool:
        """Whether it has a newline, and has been decoded for longer than a limit other than 0."""
        if not limit_ms or self.decoding_since is None or "\n" not in self.stream.text:
            return False
        return (time.perf_counter() - self.decoding_since) * 1e3 > limit_ms


@dataclass(slots=True)
class Writer:
    """Writes the texts of one request, in the slot that the engine has lent to it."""

    request: CompletionRequest
    prompt: TokenizedPrompt
    resident: Slot
    tokenizer: TextTokenizer
    started: float  # by time.perf_counter
    _healer: Healer | None
    _drawing: Drawing = field(init=False)

    def __post_init__(self) -> None:
        self._drawing = Drawing(self.request)

    @property
    def can_draft(self) -> bool:
        return self.request.max_tokens > 0 and self._drawing.is_greedy

    def drafter(self, history: DraftHistory, rest: str) -> Drafter:
        """Drafts a text that is expected to be `rest`, or to repeat what came before."""
        seen = history.suggested.token_ids + self.prompt.token_ids
        odds = history.odds_of_rest, history.odds_of_repetition
        return Drafter(seen, rest, self.tokenizer.encode, self._ends, *odds)

    def text(self, drafter: Drafter | None = None, top: int = 0) -> GrowingText:
        """A text without tokens so far."""
        cost = RequestCost(len(self.prompt.token_ids), started=self.started)
        typed = TypedBytes(self.prompt.typed, self._healer)
        return GrowingText(typed, self.tokenizer.text_stream(len(typed.rest)), cost, drafter, top)

    def choose(self, token_ids: TokenIds, text: GrowingText, *, is_prompt: bool = False) -> Steps[tuple[Choice, ...]]:
        """The choices after these tokens and after each accepted draft token, all from one forward."""
        allowed = text.typed.allowed()
        draft = packed()
        if text.drafter is not None and allowed is None:
            left = self.request.max_tokens - len(text.cost.logprobs) - 1
            draft = text.drafter.draft(text.stream.text, min(left, SHORT_TOKENS - len(token_ids)))
        chunk = self.resident.chunk(token_ids + draft, 1 + len(draft), allowed)
        choices = yield self._drawing.of(chunk, text.top)
        right = agreeing(draft, choices)
        self.resident.extend(token_ids, is_prompt)
        self.resident.extend(draft[:right], is_prompt=False)
        text.cost.forwards += 1
        text.cost.drafted_tokens += len(draft)
        if text.drafter is not None:
            text.drafter.verified(draft[:right] + packed([choices[right].token_id]), right)
        return choices[: right + 1]

    def decode(self, choices: Sequence[Choice], text: GrowingText) -> Steps[tuple[str, FinishReason]]:
        """Generate from the first choice until the text or a limit ends it; the text excludes typed bytes."""
        request, stream, cost = self.request, text.stream, text.cost
        stops = Stops(request.stop, request.stop_texts, request.prompt.suffix)
        chosen = deque(choices)
        text.decoding_since = time.perf_counter()
        while True:
            text.chosen.append(choice := chosen.popleft())
            if not self.tokenizer.is_text(choice.token_id):
                return stops.last(stream.text, "eos")
            whole = self.take(choice, text)
            end = stops.find(stream.text)
            if end is not None:
                return stream.text[:end], "stop"
            if not whole:
                return stream.text, "stop"
            if len(cost.logprobs) == request.max_tokens or text.is_late(request.max_decode_ms):
                return stops.last(stream.text, "length")
            if math.exp(sum(cost.logprobs)) < request.min_probability:
                return stops.last(stream.text, "length")
            if chosen:  # the token was drafted, so the forward has chosen its successor too
                cost.accepted_tokens += 1
            else:
                text.tell(stops)
                missing = text.token_ids[len(self.resident.token_ids) - len(self.prompt.token_ids) :]
                chosen.extend((yield from self.choose(missing, text)))

    def take(self, choice: Choice, text: GrowingText) -> bool:
        """Add a token to the text; False if the text is not UTF-8 any more."""
        before = len(text.stream.text)
        text.token_ids.append(choice.token_id)
        whole = text.stream.push(choice.token_id)
        if text.typed.take(choice.token_id):
            text.cost.recomputed_tokens += 1  # a token of typed bytes is part of the prompt, and is recomputed
            return whole
        text.cost.logprobs.append(choice.logprob)
        if self.request.top_logprobs is not None:
            text.logprobs.append(self._drawing.told(choice, text.stream.text[before:], self.tokenizer))
        return whole

    def _ends(self, token_id: int) -> bool:
        """Whether the text ends with this token, or within it."""
        spelled = self.tokenizer.bytes_of(token_id)
        return spelled is None or (self.request.stop.indent is None and (b"\n" in spelled or b"\r" in spelled))
