"""Completes one request: matches, prefills and decodes, and yields a chunk for each forward that it needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from msgspec import structs

from inference.engine.drafts import DraftHistories, DraftHistory
from inference.engine.partial_words import PartialWordCache
from inference.engine.request import Request, validate
from inference.engine.search import Search
from inference.engine.short_prompts import PrefillSpeed, choose_prompt
from inference.engine.slots import Slots
from inference.engine.writer import Steps, Text, Writer, spelling
from inference.text.healing import Healer
from inference.text.prompts import TokenizedPrompt, tokenize_prompt
from inference.text.token_ids import packed
from inference.text.tokenization import TextTokenizer
from protocol.messages import Alternative, Completion, CompletionRequest


class Stopped(Exception):
    """The request was cancelled, or gives way."""


@dataclass(frozen=True, slots=True)
class SharedState:
    """The objects that all requests share."""

    tokenizer: TextTokenizer
    healer: Healer | None
    partial_words: PartialWordCache
    slots: Slots
    histories: DraftHistories | None  # None without speculation
    context_tokens: int
    speed: PrefillSpeed

    def prompt_of(self, request: Request) -> TokenizedPrompt:
        """The request's prompt as tokens, which may be the short one; two workspaces hold both."""
        if self.slots.count < 2:
            return self._tokenize(request.spec)
        return choose_prompt(request, self._tokenize, self.tokenizer.count_tokens, self.slots.missing, self.speed)

    def _tokenize(self, spec: CompletionRequest) -> TokenizedPrompt:
        return tokenize_prompt(spec.prompt, self.tokenizer, self.context_tokens, spec.max_tokens, self.healer)


def complete(request: Request, shared: SharedState, chunk_tokens: Callable[[], int]) -> Steps[Completion]:
    """The steps from a request to its completion; BadInput for an invalid request.

    `chunk_tokens` returns, before each forward, how many tokens of a long prompt the forward may take. `max_tokens` is
    limited to half the context. The engine throws Stopped to end the steps early.
    """
    validate(request.spec)
    most = min(request.spec.max_tokens, shared.context_tokens // 2)
    request.spec = structs.replace(request.spec, max_tokens=most)
    stable, spec = shared.prompt_of(request), request.spec
    start = shared.partial_words.start(request, stable)
    request.cost.prompt_tokens = len(start.prompt.token_ids)
    with ExitStack() as stack:
        try:
            slot = stack.enter_context(shared.slots.acquire(request.session, start.prompt.token_ids if spec.reuse else packed()))
        except MemoryError:  # requeue: capacity is now the number of existing workspaces
            return request.cost.completion("", "cancelled")
        writer = Writer(request, start.prompt, slot, shared.tokenizer, chunk_tokens, shared.healer)
        search = Search(writer, shared.context_tokens)
        histories = shared.histories if spec.reuse else None  # a cold request must always cost the same
        history = DraftHistory() if histories is None else histories.of(request.session)
        before = spec.prompt.prefix + spec.prompt.increment
        drafts = shared.histories is not None and writer.can_draft and not search.others
        drafter = writer.drafter(history, history.suggested.rest_after(before)) if drafts else None
        text = writer.text(drafter, search.top, is_first=True)
        try:
            completion, text = yield from _answer(request, writer, search, text)
        except Stopped:
            completion = request.cost.completion("", "cancelled")
        if text.stream.text:
            history.remember(before, completion.text or text.stream.text, text.token_ids)
        start.remember(text.token_ids)
        return structs.replace(completion, is_short=request.session.is_short)


def _answer(request: Request, writer: Writer, search: Search, first: Text) -> Steps[tuple[Completion, Text]]:
    """The completion, and the text that it is; `first` is the most probable one."""
    cost = request.cost
    choices = yield from writer.prefill(first)
    cost.prefilled = time.perf_counter()
    if not choices:
        return cost.completion("", "length"), first
    found = [(yield from search.end(choices, first))]
    if search.others:
        found += yield from search.other_texts(*found)
        found.sort(key=lambda each: -each.fit)
        yield from search.make_resident(found[0].token_ids)  # again: most users accept the first
    (best, *others) = found
    alternatives = [Alternative(each.text, each.reason) for each in others if each.text]
    completion = cost.completion(
        best.text,
        best.reason,
        best.growing.mean_logprob,
        tuple(alternatives[: request.spec.alternatives]),
        spelling(best.growing.reported, best.text),
    )
    return completion, best.growing
