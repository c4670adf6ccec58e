"""Completes one request: matches, prefills and decodes, and yields a chunk for each forward that it needs."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from msgspec import structs

from inference.backends.chunk import SHORT_TOKENS
from inference.backends.model import Choice
from inference.engine.active_request import IsCancelled, OnPrefill, OnText, Steps, Stopped
from inference.engine.decoding.alternatives import TRIES, Branch, branches
from inference.engine.decoding.draft_history import DraftHistories, DraftHistory
from inference.engine.decoding.drafters import Drafter, agreeing
from inference.engine.decoding.drawing import Drawing, check_choosing, spelling
from inference.engine.decoding.fitting import COMPARED, text_and_suffix
from inference.engine.decoding.typed_choices import TypedChoices
from inference.engine.request_cost import RequestCost
from inference.engine.slot import Slot
from inference.engine.slots import Slots
from inference.text.healing import Healer, TypedBytes
from inference.text.prompts import TokenizedPrompt, tokenize_prompt
from inference.text.stops import Stops
from inference.text.token_bytes import TextStream
from inference.text.token_ids import TokenIds, common_prefix_length, packed
from inference.text.tokenization import TextTokenizer
from protocol.messages import Alternative, Completion, CompletionRequest, FinishReason, TokenLogprob


@dataclass(frozen=True, slots=True)
class Tools:
    """The objects that all requests share."""

    tokenizer: TextTokenizer
    healer: Healer | None
    typed_choices: TypedChoices
    slots: Slots
    histories: DraftHistories | None  # None without speculation
    context_tokens: int


def complete(
    request: CompletionRequest,
    tools: Tools,
    cancelled: IsCancelled,
    chunk_tokens: Callable[[], int],
    on_prefill: OnPrefill = lambda *_: None,
    on_text: OnText | None = None,
) -> Steps[Completion]:
    """The steps from a request to its completion; BadInput for an invalid request.

    `chunk_tokens` returns, before each forward, how many tokens of a long prompt the forward may take. `max_tokens` is
    limited to half the context. `on_text` receives the completion's text while it grows.
    """
    check_choosing(request)
    started = time.perf_counter()
    request = structs.replace(request, max_tokens=min(request.max_tokens, tools.context_tokens // 2))
    settled = tokenize_prompt(request.prompt, tools.tokenizer, tools.context_tokens, request.max_tokens, tools.healer)
    start = tools.typed_choices.start(request, settled)
    prompt = start.prompt
    shared = prompt.token_ids if request.reuse else packed()
    with ExitStack() as stack:
        try:
            resident = stack.enter_context(tools.slots.lend(request.session, shared))
        except MemoryError:  # requeue: capacity is now the number of existing workspaces
            return RequestCost(len(prompt.token_ids), started=started).completion("", "cancelled")
        completing = _Completing(
            request, prompt, resident, tools, cancelled, chunk_tokens, on_prefill, on_text, started
        )
        completion, generated = yield from completing.steps()
        start.remember(generated)
        return completion


@dataclass(slots=True)
class _Completing:
    """One request, with the slot that the engine has lent to it."""

    _request: CompletionRequest
    _prompt: TokenizedPrompt
    _resident: Slot
    _tools: Tools
    _cancelled: IsCancelled
    _chunk_tokens: Callable[[], int]
    _on_prefill: OnPrefill
    _on_text: OnText | None
    _started: float
    _drawing: Drawing = field(init=False)
    _history: DraftHistory = field(init=False)

    def __post_init__(self) -> None:
        histories = self._tools.histories if self._request.reuse else None  # a cold request must always cost the same
        self._history = DraftHistory() if histories is None else histories.of(self._request.session)
        self._drawing = Drawing(self._request)

    def steps(self) -> Steps[tuple[Completion, TokenIds]]:
        """Prefill, then decode the completion and its alternatives, if requested; with all tokens generated for it."""
        before = self._request.prompt.prefix + self._request.prompt.increment
        rest = self._history.suggested.rest_after(before)
        suggestion = self._text(rest)
        suggestion.on_text = None if self._ranks else self._on_text  # another text may turn out to be the best
        try:
            completion, suggestion = yield from self._complete(suggestion)
        except Stopped:
            completion = suggestion.cost.completion("", "cancelled")
        if suggestion.stream.text:
            self._history.remember(before, completion.text or suggestion.stream.text, suggestion.token_ids)
        return completion, suggestion.token_ids

    def _text(self, rest: str = "") -> _GrowingText:
        """A new text, which is expected to be `rest`."""
        tokenizer, history = self._tools.tokenizer, self._history
        drafter, top = None, 0
        if self._others:
            top = 1 + self._others
        elif self._tools.histories is not None and self._request.max_tokens > 0 and self._drawing.is_greedy:
            seen = history.suggested.token_ids + self._prompt.token_ids
            odds = history.odds_of_rest, history.odds_of_repetition
            drafter = Drafter(seen, rest, tokenizer.encode, self._ends, *odds)
        cost = RequestCost(len(self._prompt.token_ids), started=self._started)
        typed = TypedBytes(self._prompt.typed, self._tools.healer)
        return _GrowingText(typed, tokenizer.text_stream(len(typed.rest)), drafter, cost, top)

    def _ends(self, token_id: int) -> bool:
        """Whether the text ends with this token, or within it."""
        spelled = self._tools.tokenizer.bytes_of(token_id)
        return spelled is None or (self._request.stop.indent is None and (b"\n" in spelled or b"\r" in spelled))

    @property
    def _others(self) -> int:
        """The number of texts to write besides the most probable one."""
        return max(self._request.alternatives, self._request.best_of - 1)

    @property
    def _ranks(self) -> bool:
        return self._request.best_of > 1 and bool(self._request.prompt.suffix)

    def _complete(self, suggestion: _GrowingText) -> Steps[tuple[Completion, _GrowingText]]:
        """The completion, and the text that it is; `suggestion` is the most probable one."""
        cost = suggestion.cost
        choices = yield from self._prefill(suggestion)
        cost.prefilled = time.perf_counter()
        if not choices:
            return cost.completion("", "length"), suggestion
        found = [(yield from self._end(choices, suggestion))]
        if self._others:
            found += yield from self._other_texts(*found)
            found.sort(key=lambda each: -each.fit)
            yield from self._make_resident(found[0].token_ids, cost)  # again: most users accept the first
        (best, *others) = found
        alternatives = [Alternative(each.text, each.reason) for each in others if each.text]
        completion = cost.completion(best.text, best.reason, tuple(alternatives[: self._request.alternatives]))
        tokens = spelling(best.growing.logprobs, best.text)
        return structs.replace(completion, mean_logprob=best.growing.cost.mean_logprob, tokens=tokens), best.growing

    def _prefill(self, text: _GrowingText) -> Steps[tuple[Choice, ...]]:
        """Compute the missing part of the prompt in chunks; returns the next token's choices, if requested."""
        missing = self._prompt.token_ids[self._match() :]
        if text.cost.prepared is None:
            text.cost.prepared = time.perf_counter()
        choices: tuple[Choice, ...] = ()
        while missing:
            count = self._chunk_tokens()
            token_ids, missing = missing[:count], missing[count:]
            if self._request.max_tokens and not missing:
                choices = yield from self._choose(token_ids, text, is_prompt=self._request.reuse)
            else:
                yield self._resident.chunk(token_ids)
                self._resident.extend(token_ids, is_prompt=self._request.reuse)
                text.cost.forwards += 1
                if not (self._request.max_tokens or self._cancelled()):
                    self._resident.save()  # chunk by chunk, so that no keystroke waits for one large save
            text.cost.recomputed_tokens += len(token_ids)
            if missing:
                total = len(self._prompt.token_ids)
                self._on_prefill(total - len(missing), total)
        return choices

    def _match(self) -> int:
        """Number of leading tokens that are not recomputed; excludes the last one if its next token is requested."""
        if not self._request.reuse:
            self._resident.prepare_cold(self._request.session)
            return 0
        token_ids = self._prompt.token_ids
        wanted = token_ids[:-1] if self._request.max_tokens else token_ids
        return self._resident.prepare(wanted, self._request.session)

    def _choose(self, token_ids: TokenIds, text: _GrowingText, *, is_prompt: bool = False) -> Steps[tuple[Choice, ...]]:
        """The choices after these tokens and after each accepted draft token, all from one forward."""
        allowed = text.typed.allowed()
        draft = packed()
        if text.drafter is not None and allowed is None:
            left = self._request.max_tokens - len(text.cost.logprobs) - 1
            draft = text.drafter.draft(text.stream.text, min(left, SHORT_TOKENS - len(token_ids)))
        chunk = self._resident.chunk(token_ids + draft, 1 + len(draft), allowed)
        choices = yield self._drawing.of(chunk, text.top)
        right = agreeing(draft, choices)
        self._resident.extend(token_ids, is_prompt)
        self._resident.extend(draft[:right], is_prompt=False)
        text.cost.forwards += 1
        text.cost.drafted_tokens += len(draft)
        if text.drafter is not None:
            text.drafter.verified(draft[:right] + packed([choices[right].token_id]), right)
        return choices[: right + 1]

    def _end(self, choices: Sequence[Choice], growing: _GrowingText) -> Steps[_Ended]:
        """Decode to the text's end, and find out how well it fits, if texts are ranked by that."""
        text, reason = yield from self._decode(choices, growing)
        bytes_of, suffix = self._tools.tokenizer.bytes_of, self._request.prompt.suffix
        kept, rest = text_and_suffix(growing.token_ids, self._prompt.typed + text.encode(), suffix, bytes_of)
        token_ids = growing.token_ids[:kept]
        fit = (yield from self._fit(growing, token_ids, rest)) if self._ranks else 0.0
        return _Ended(growing, text, reason, token_ids, fit)

    def _fit(self, growing: _GrowingText, token_ids: TokenIds, rest: str) -> Steps[float]:
        """The logarithm of the probability of `token_ids` behind the prompt, and of what follows in the document.

        This compares texts by prefix and suffix alike, even if the model pays little attention to the suffix while it
        writes: p(suffix | text) decides among texts whose p(text) is similar.
        """
        before = self._prompt.token_ids + token_ids
        expected = self._tools.tokenizer.encode(rest)[: min(COMPARED, self._tools.context_tokens - len(before))]
        typed = len(growing.token_ids) - len(growing.cost.logprobs)
        logprob = sum(growing.cost.logprobs[: max(0, len(token_ids) - typed)])
        if not expected:
            return logprob
        # The last token is computed again, and what an earlier text has overwritten of a text that ended at once.
        self._resident.crop(min(len(before) - 1, common_prefix_length(self._resident.token_ids, before)))
        missing = before[len(self._resident.token_ids) :]
        choices = yield replace(self._resident.chunk(missing + expected[:-1], len(expected)), forced=expected)
        self._resident.extend(missing, is_prompt=self._request.reuse and not token_ids)
        growing.cost.forwards += 1
        return logprob + sum(choice.logprob for choice in choices)

    def _other_texts(self, suggestion: _Ended) -> Steps[list[_Ended]]:
        """The wanted number of other texts: each leaves an earlier one at a token, and is greedy from there.

        The most probable beginning goes first, so that their order is that of a best-first search.
        """
        found: dict[str, _Ended] = {}
        left = self._branches(suggestion)
        for _ in range(TRIES * self._others):
            if len(found) == self._others or not left:
                break
            branch = max(left, key=lambda each: each.logprob)
            left.remove(branch)
            ended = yield from self._other_text(branch, suggestion.growing.cost)
            if ended.text not in ("", suggestion.text, *found):
                found[ended.text] = ended
                left += self._branches(ended)
        return list(found.values())

    def _other_text(self, branch: Branch, cost: RequestCost) -> Steps[_Ended]:
        """The text that begins so."""
        known = packed(choice.token_id for choice in (*branch.kept, branch.choice))
        growing = self._text()
        for choice in branch.kept:
            self._take(choice, growing)
            growing.chosen.append(Choice(choice.token_id, choice.logprob))  # nothing leaves it where it was another's
        not_generated = len(growing.cost.logprobs)
        self._crop(known)
        try:
            return (yield from self._end((branch.choice,), growing))
        finally:
            cost.add(growing.cost, not_generated)

    def _branches(self, ended: _Ended) -> list[Branch]:
        bytes_of = self._tools.tokenizer.bytes_of
        return branches(ended.growing.chosen, self._prompt.typed, ended.text, bytes_of)

    def _crop(self, generated: TokenIds) -> None:
        """Crop the workspace to the tokens that it has of the prompt and of `generated`."""
        length = len(self._prompt.token_ids)
        self._resident.crop(length + common_prefix_length(self._resident.token_ids[length:], generated))

    def _make_resident(self, generated: TokenIds, cost: RequestCost) -> Steps[None]:
        """Compute what is missing of the prompt and `generated`."""
        self._crop(generated)
        while missing := generated[len(self._resident.token_ids) - len(self._prompt.token_ids) :]:
            token_ids = missing[: self._chunk_tokens()]
            yield self._resident.chunk(token_ids)
            self._resident.extend(token_ids, is_prompt=False)
            cost.forwards += 1

    def _decode(self, choices: Sequence[Choice], text: _GrowingText) -> Steps[tuple[str, FinishReason]]:
        """Generate from the first choice until the text or a limit ends it; the text excludes typed bytes."""
        stream, cost = text.stream, text.cost
        stops = Stops(self._request.stop, self._request.stop_texts, self._request.prompt.suffix)
        chosen = deque(choices)
        text.decoding_since = time.perf_counter()
        while True:
            text.chosen.append(choice := chosen.popleft())
            if not self._tools.tokenizer.is_text(choice.token_id):
                return stops.last(stream.text, "eos")
            whole = self._take(choice, text)
            end = stops.find(stream.text)
            if end is not None:
                return stream.text[:end], "stop"
            if not whole:
                return stream.text, "stop"
            if len(cost.logprobs) == self._request.max_tokens or text.is_late(self._request.max_decode_ms):
                return stops.last(stream.text, "length")
            if math.exp(sum(cost.logprobs)) < self._request.min_probability:
                return stops.last(stream.text, "length")
            if chosen:  # the token was drafted, so the forward has chosen its successor too
                cost.accepted_tokens += 1
            else:
                text.tell(stops)
                missing = text.token_ids[len(self._resident.token_ids) - len(self._prompt.token_ids) :]
                chosen.extend((yield from self._choose(missing, text)))

    def _take(self, choice: Choice, text: _GrowingText) -> bool:
        """Add a token to the text; False if the text is not UTF-8 any more."""
        before = len(text.stream.text)
        text.token_ids.append(choice.token_id)
        whole = text.stream.push(choice.token_id)
        if text.typed.take(choice.token_id):
            text.cost.recomputed_tokens += 1  # a token of typed bytes is part of the prompt, and is recomputed
            return whole
        text.cost.logprobs.append(choice.logprob)
        if self._request.top_logprobs is not None:
            text.logprobs.append(self._drawing.told(choice, text.stream.text[before:], self._tools.tokenizer))
        return whole


@dataclass(frozen=True, slots=True)
class _Ended:
    """A text at its end."""

    growing: _GrowingText
    text: str
    reason: FinishReason
    token_ids: TokenIds  # of it and the typed bytes, but for a token that reaches beyond it
    fit: float  # between prefix and suffix, if texts are ranked by that; comparable for one prompt only


@dataclass(slots=True)
class _GrowingText:
    """A text that is being generated, and what its generation needs."""

    typed: TypedBytes  # bytes that its first tokens must spell; not part of the text
    stream: TextStream
    drafter: Drafter | None
    cost: RequestCost
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
