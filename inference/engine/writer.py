"""The writer of texts: prefills the prompt, chooses or draws tokens, verifies drafts, and ends a text at a stop."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeVar

from msgspec import structs

from inference.backends.model import SHORT_TOKENS, Choice, Chunk, Draw
from inference.engine.drafts import Copy, Drafter, DraftHistory, agreeing
from inference.engine.request import Request
from inference.engine.slots import Slot
from inference.text.healing import Healer, TypedBytes
from inference.text.prompts import TokenizedPrompt
from inference.text.stops import Stops
from inference.text.token_ids import TextStream, TokenIds, packed
from inference.text.tokenization import TextTokenizer
from protocol.messages import FinishReason, Sampling, TokenLogprob

SNAPSHOT_EVERY = 256
"""Prompt tokens; a cursor that goes elsewhere shares any number of tokens with earlier prompts."""
SNAPSHOTS_BEFORE_END = (1, 2, 4, 8, 16, 32, 64, 128)
"""Prompt tokens: a deletion of any length then finds a snapshot that is at most as far again from the end."""
HARDLY_ANY = 3
"""Tokens that one forward computes in hardly more time than one token."""


class Sampler:
    """Adds to each chunk how its next token is chosen; one per run of a request."""

    def __init__(self, sampling: Sampling | None) -> None:
        self.sampling = sampling
        self._random = random.Random(None if sampling is None else sampling.seed)

    def apply(self, chunk: Chunk, top: int) -> Chunk:
        """The chunk, with how its next token is chosen, and `top` of the most probable tokens returned."""
        if self.sampling is None:
            return replace(chunk, top=top) if top else chunk
        return replace(chunk, draw=Draw(self._random.random(), self.sampling), top=top)


def spelling(tokens: Sequence[TokenLogprob], text: str) -> tuple[TokenLogprob, ...]:
    """The leading tokens that `text` consists of: a stop rule may have cut the text, within a token too."""
    starts = accumulate((len(token.text) for token in tokens), initial=0)
    return tuple(
        structs.replace(token, text=token.text[: len(text) - start])
        for token, start in zip(tokens, starts, strict=False)
        if start < len(text)
    )


Result = TypeVar("Result")
Steps = Generator[Chunk, tuple[Choice, ...], Result]
"""Yields a chunk for each forward and receives its choices."""


@dataclass(slots=True)
class Text:
    """A text that is being generated, and what its generation needs."""

    typed: TypedBytes  # bytes that its first tokens must spell; not part of the text
    stream: TextStream
    drafter: Drafter | None = None
    top: int = 0  # number of the most probable tokens to note in each place, the chosen one included
    is_first: bool = False  # the most probable one; only what it recomputes of the prompt counts
    decoding_since: float | None = None  # by time.perf_counter
    token_ids: TokenIds = field(default_factory=packed)  # generated so far, including those of typed bytes
    chosen: list[Choice] = field(default_factory=list)  # the same, and a token that ended the text without being text
    logprobs: list[float] = field(default_factory=list)  # of the text's tokens
    reported: list[TokenLogprob] = field(default_factory=list)  # the same, if the request wants them

    @property
    def mean_logprob(self) -> float | None:
        """Of the text's tokens; None without any."""
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else None

    def is_late(self, limit_ms: int) -> bool:
        """Whether it has a newline, and has been decoded for longer than a limit other than 0."""
        if not limit_ms or self.decoding_since is None or "\n" not in self.stream.text:
            return False
        return (time.perf_counter() - self.decoding_since) * 1e3 > limit_ms


@dataclass(slots=True)
class Writer:
    """Writes the texts of one request, in the slot that it has acquired."""

    request: Request
    prompt: TokenizedPrompt
    resident: Slot
    tokenizer: TextTokenizer
    chunk_tokens: Callable[[], int]
    _healer: Healer | None
    _sampler: Sampler = field(init=False)

    def __post_init__(self) -> None:
        self._sampler = Sampler(self.request.spec.sampling)

    @property
    def can_draft(self) -> bool:
        return self.request.spec.max_tokens > 0 and self._sampler.sampling is None

    @property
    def ranks(self) -> bool:
        """Whether several texts are written, and ordered by how well they fit before the suffix."""
        return self.request.spec.best_of > 1 and bool(self.request.spec.prompt.suffix)

    def drafter(self, history: DraftHistory, rest: str) -> Drafter:
        """Drafts a text that is expected to be `rest`, to be a copy with changes, or to repeat what came before."""
        seen = history.suggested.token_ids + self.prompt.token_ids
        copies, odds = self.request.spec.copies, (history.odds_of_rest, history.odds_of_repetition)
        copy = Copy(self.tokenizer.encode(copies), self._ends_line) if copies else None
        return Drafter(seen, rest, self.tokenizer.encode, self._ends, *odds, copy, history.odds_of_copy)

    def text(self, drafter: Drafter | None = None, top: int = 0, *, is_first: bool = False) -> Text:
        """A text without tokens so far."""
        typed = TypedBytes(self.prompt.typed, self._healer)
        return Text(typed, self.tokenizer.text_stream(len(typed.rest)), drafter, top, is_first)

    def prefill(self, text: Text) -> Steps[tuple[Choice, ...]]:
        """Compute the missing part of the prompt in chunks; returns the next token's choices, if requested."""
        request, cost = self.request, self.request.cost
        missing = self.prompt.token_ids[self._match() :]
        cost.prepared = time.perf_counter()
        choices: tuple[Choice, ...] = ()
        marks = self._marks(len(missing))
        while missing:
            start = len(self.prompt.token_ids) - len(missing)
            count = min(self.chunk_tokens(), *(mark - start for mark in marks if mark > start), len(missing))
            token_ids, missing = missing[:count], missing[count:]
            if request.spec.max_tokens and not missing:
                choices = yield from self.choose(token_ids, text, is_prompt=request.spec.reuse)
            else:
                yield self.resident.chunk(token_ids)
                self.resident.extend(token_ids, is_prompt=request.spec.reuse)
                cost.forwards += 1
                if request.is_prefetch and not request.is_unwanted:
                    self.resident.save()  # chunk by chunk, so that no keystroke waits for one large save
            cost.recomputed_tokens += len(token_ids)
            if missing:
                request.report_prefill(len(self.prompt.token_ids) - len(missing))
        return choices

    def choose(self, token_ids: TokenIds, text: Text, *, is_prompt: bool = False) -> Steps[tuple[Choice, ...]]:
        """The choices after these tokens and after each accepted draft token, all from one forward."""
        allowed = text.typed.allowed()
        draft = packed()
        # Where a wrong draft would take the state behind the prompt with it, the next key would compute these again.
        settles = is_prompt and self.resident.workspace.snapshots is not None
        if text.drafter is not None and allowed is None and not settles:
            left = self.request.spec.max_tokens - len(text.logprobs) - 1
            draft = text.drafter.draft(text.stream.text, min(left, SHORT_TOKENS - len(token_ids)))
        chunk = self.resident.chunk(token_ids + draft, 1 + len(draft), allowed)
        choices = yield self._sampler.apply(chunk, text.top)
        right = agreeing(draft, choices)
        self.resident.extend(token_ids, is_prompt, draft[:right])
        self.request.cost.forwards += 1
        self.request.cost.drafted_tokens += len(draft)
        if text.drafter is not None:
            text.drafter.verified(draft[:right] + packed([choices[right].token_id]), right)
        return choices[: right + 1]

    def decode(self, choices: Sequence[Choice], text: Text) -> Steps[tuple[str, FinishReason]]:
        """Generate from the first choice until the text or a limit ends it; the text excludes typed bytes."""
        spec, stream = self.request.spec, text.stream
        stops = Stops(spec.stop, spec.stop_texts, spec.prompt.suffix)
        grows = self.request.grows and text.is_first and not self.ranks  # else another may turn out to be the best
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
            if len(text.logprobs) == spec.max_tokens or text.is_late(spec.max_decode_ms):
                return stops.last(stream.text, "length")
            if math.exp(sum(text.logprobs)) < spec.min_probability:
                return stops.last(stream.text, "length")
            if chosen:  # the token was drafted, so the forward has chosen its successor too
                self.request.cost.accepted_tokens += 1
            else:
                if grows:
                    self.request.report_text(stream.text[: stops.stable(stream.text)])
                chosen.extend((yield from self.choose(self.missing(text.token_ids), text)))

    def missing(self, generated: TokenIds) -> TokenIds:
        """The missing tokens of the prompt and of `generated` behind it, with which the resident tokens agree."""
        behind = len(self.resident.token_ids) - len(self.prompt.token_ids)
        return generated[behind:] if behind >= 0 else self.prompt.token_ids[behind:] + generated

    def take(self, choice: Choice, text: Text, *, is_generated: bool = True) -> bool:
        """Add a token to the text; False if the text is not UTF-8 any more."""
        before = len(text.stream.text)
        text.token_ids.append(choice.token_id)
        whole = text.stream.push(choice.token_id)
        if text.typed.take(choice.token_id):
            # A token of typed bytes is part of the prompt, and is recomputed.
            self.request.cost.recomputed_tokens += text.is_first
            return whole
        text.logprobs.append(choice.logprob)
        self.request.cost.generated_tokens += is_generated
        if self.request.spec.token_logprobs:
            text.reported.append(TokenLogprob(text.stream.text[before:], choice.logprob))
        return whole

    def _match(self) -> int:
        """Number of leading tokens that are not recomputed; excludes the last one if its next token is requested."""
        spec = self.request.spec
        if not spec.reuse:
            self.resident.prepare_cold(self.request.session)
            return 0
        token_ids = self.prompt.token_ids
        return self.resident.prepare(token_ids[:-1] if spec.max_tokens else token_ids, self.request.session)

    def _ends_line(self, token_id: int) -> bool:
        return b"\n" in (self.tokenizer.bytes_of(token_id) or b"")

    def _marks(self, missing: int) -> list[int]:
        """Positions at which a chunk of the prompt ends, for a snapshot of recurrent layers to be taken there.

        They are where a later prompt may leave this one. Of a long rest some are also shortly before its end, for the
        next keys that delete, and before the last token, which is computed again for the same prompt: fewer if a user
        waits, since each costs a forward. And where this prompt has left an earlier one, the next is likely to leave
        it: a word that is typed on changes the same token again, and an undone edit returns there.
        """
        snapshots, prompt = self.resident.workspace.snapshots, self.prompt
        if snapshots is None:
            return []
        end = len(prompt.token_ids)
        snapshots.note_prompt(end, prompt.joints[1:])
        marks = [*range(SNAPSHOT_EVERY, end, SNAPSHOT_EVERY), *prompt.joints]
        if missing > SHORT_TOKENS:
            distances = SNAPSHOTS_BEFORE_END[:: 1 if self.request.is_prefetch else 3]
            marks += [end - distance for distance in distances]
        if min(missing, self.resident.left_at) > HARDLY_ANY:
            marks.append(self.resident.left_at)
        return marks

    def _ends(self, token_id: int) -> bool:
        """Whether the text ends with this token, or within it."""
        spelled = self.tokenizer.bytes_of(token_id)
        return spelled is None or (self.request.spec.stop.indent is None and (b"\n" in spelled or b"\r" in spelled))
