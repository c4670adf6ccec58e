"""Completes one request: matches, prefills and decodes, and yields a chunk for each forward that it needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from msgspec import structs

from inference.backends.model import Choice
from inference.engine.active_request import IsCancelled, OnPrefill, OnText, Steps, Stopped
from inference.engine.decoding.draft_history import DraftHistories, DraftHistory
from inference.engine.decoding.drawing import check_choosing, spelling
from inference.engine.decoding.typed_choices import TypedChoices
from inference.engine.request_cost import RequestCost
from inference.engine.search import Search
from inference.engine.slot import Slot
from inference.engine.slots import Slots
from inference.engine.writer import GrowingText, Writer
from inference.text.healing import Healer
from inference.text.prompts import TokenizedPrompt, tokenize_prompt
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import TextTokenizer
from protocol.messages import Alternative, Completion, CompletionRequest


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
        writer = Writer(request, prompt, resident, tools.tokenizer, started, tools.healer)
        completing = _Completing(writer, tools, cancelled, chunk_tokens, on_prefill, on_text)
        completion, generated = yield from completing.steps()
        start.remember(generated)
        return completion


@dataclass(slots=True)
class _Completing:
    """One request: its prompt, then the text or the texts that answer it."""

    _writer: Writer
    _tools: Tools
    _cancelled: IsCancelled
    _chunk_tokens: Callable[[], int]
    _on_prefill: OnPrefill
    _on_text: OnText | None
    _request: CompletionRequest = field(init=False)
    _resident: Slot = field(init=False)
    _prompt: TokenizedPrompt = field(init=False)
    _search: Search = field(init=False)

    def __post_init__(self) -> None:
        writer = self._writer
        self._request, self._resident, self._prompt = writer.request, writer.resident, writer.prompt
        self._search = Search(writer, self._tools.context_tokens)

    def steps(self) -> Steps[tuple[Completion, TokenIds]]:
        """Prefill, then decode the completion and its alternatives, if requested; with all tokens generated for it."""
        histories = self._tools.histories if self._request.reuse else None  # a cold request must always cost the same
        history = DraftHistory() if histories is None else histories.of(self._request.session)
        before = self._request.prompt.prefix + self._request.prompt.increment
        drafts = self._tools.histories is not None and self._writer.can_draft and not self._search.others
        drafter = self._writer.drafter(history, history.suggested.rest_after(before)) if drafts else None
        suggestion = self._writer.text(drafter, self._search.top)
        suggestion.on_text = None if self._search.ranks else self._on_text  # another text may turn out to be the best
        try:
            completion, suggestion = yield from self._complete(suggestion)
        except Stopped:
            completion = suggestion.cost.completion("", "cancelled")
        if suggestion.stream.text:
            history.remember(before, completion.text or suggestion.stream.text, suggestion.token_ids)
        return completion, suggestion.token_ids

    def _complete(self, suggestion: GrowingText) -> Steps[tuple[Completion, GrowingText]]:
        """The completion, and the text that it is; `suggestion` is the most probable one."""
        cost = suggestion.cost
        choices = yield from self._prefill(suggestion)
        cost.prefilled = time.perf_counter()
        if not choices:
            return cost.completion("", "length"), suggestion
        found = [(yield from self._search.end(choices, suggestion))]
        if self._search.others:
            found += yield from self._search.other_texts(*found)
            found.sort(key=lambda each: -each.fit)
            yield from self._make_resident(found[0].token_ids, cost)  # again: most users accept the first
        (best, *others) = found
        alternatives = [Alternative(each.text, each.reason) for each in others if each.text]
        completion = cost.completion(best.text, best.reason, tuple(alternatives[: self._request.alternatives]))
        tokens = spelling(best.growing.logprobs, best.text)
        return structs.replace(completion, mean_logprob=best.growing.cost.mean_logprob, tokens=tokens), best.growing

    def _prefill(self, text: GrowingText) -> Steps[tuple[Choice, ...]]:
        """Compute the missing part of the prompt in chunks; returns the next token's choices, if requested."""
        missing = self._prompt.token_ids[self._match() :]
        if text.cost.prepared is None:
            text.cost.prepared = time.perf_counter()
        choices: tuple[Choice, ...] = ()
        while missing:
            count = self._chunk_tokens()
            token_ids, missing = missing[:count], missing[count:]
            if self._request.max_tokens and not missing:
                choices = yield from self._writer.choose(token_ids, text, is_prompt=self._request.reuse)
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

    def _make_resident(self, generated: TokenIds, cost: RequestCost) -> Steps[None]:
        """Compute what is missing of the prompt and `generated`."""
        self._search.crop(generated)
        while missing := generated[len(self._resident.token_ids) - len(self._prompt.token_ids) :]:
            token_ids = missing[: self._chunk_tokens()]
            yield self._resident.chunk(token_ids)
            self._resident.extend(token_ids, is_prompt=False)
            cost.forwards += 1
