"""The inference core as a library: a request goes in, matched, prefilled, decoded, and its completion comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inference.branches import Branches
from inference.healing import Healer, TypedBytes
from inference.model import Choice, Model
from inference.prompts import TokenizedPrompt, tokenize_prompt
from inference.resident import ResidentPrompt
from inference.stops import find_stop
from inference.tokenization import TextTokenizer
from kv_store.interface import KVStore, StoreStats
from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest, FinishReason, Usage

Cancelled = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What people and language servers want to know of a loaded model."""

    model: str
    device: str
    context_tokens: int
    chars_per_token: float  # of source code


@dataclass(slots=True)
class _Work:
    """What one request has cost so far."""

    prompt_tokens: int
    recomputed_tokens: int = 0
    forwards: int = 0
    started: float = field(default_factory=time.perf_counter)
    prefilled: float | None = None
    logprobs: list[float] = field(default_factory=list)
    branch_tokens: int = 0  # generated for alternatives

    def completion(self, text: str, reason: FinishReason, alternatives: tuple[str, ...] = ()) -> Completion:
        now = time.perf_counter()
        prefilled = now if self.prefilled is None else self.prefilled
        generated = len(self.logprobs)
        usage = Usage(
            prompt_tokens=self.prompt_tokens,
            recomputed_tokens=self.recomputed_tokens,
            generated_tokens=generated + self.branch_tokens,
            forwards=self.forwards,
            queue_ms=0.0,
            prefill_ms=(prefilled - self.started) * 1e3,
            decode_ms=(now - prefilled) * 1e3,
        )
        mean_logprob = sum(self.logprobs) / generated if generated else None
        return Completion(text, reason, usage, mean_logprob, alternatives)

    def add(self, branch: _Work) -> None:
        """Count what an alternative cost."""
        self.recomputed_tokens += branch.recomputed_tokens
        self.forwards += branch.forwards
        self.branch_tokens += len(branch.logprobs)


class Engine:
    """A model, its tokenizer and what is resident. One thread uses it; `complete` tells the whole story."""

    def __init__(
        self,
        info: EngineInfo,
        model: Model,
        tokenizer: TextTokenizer,
        store: KVStore,
        prefill_chunk: int,
        healer: Healer | None = None,
    ) -> None:
        self.info = info
        self._healer = healer
        self._branches = Branches(tokenizer, healer)
        self.tokenizer = tokenizer
        self._model = model
        self._resident = ResidentPrompt(model.workspace, store, model.alignment)
        self._store = store
        self._prefill_chunk = prefill_chunk

    def complete(self, request: CompletionRequest, cancelled: Cancelled = lambda: False) -> Completion:
        """The greedy completion of a request; BadInput where the request cannot be used.

        `cancelled` is asked before every forward. A cancelled request answers with what it has, and leaves what it
        had prefilled resident. With `max_tokens=0` the whole prompt is made resident and the text is empty.
        """
        if request.max_tokens < 0:
            raise BadInput(f"max_tokens is {request.max_tokens}: it has to be 0 or more")
        prompt = tokenize_prompt(
            request.prompt, self.tokenizer, self._model.context_tokens, request.max_tokens, self._healer
        )
        work = _Work(len(prompt.token_ids))
        typed = TypedBytes(prompt.typed, self._healer)
        matched = self._match(prompt.token_ids, request)
        choice = self._prefill(prompt.token_ids[matched:], request, typed, work, cancelled)
        work.prefilled = time.perf_counter()
        if choice is None:
            finished = matched + work.recomputed_tokens == len(prompt.token_ids)
            return work.completion("", "length" if finished else "cancelled")
        alternatives = self._alternatives(prompt, choice, request, work, cancelled)
        if alternatives:  # the suggestion comes last, so that it is resident when it is accepted
            choice = self._begin(prompt, request, typed, work, cancelled)
            if choice is None:
                return work.completion("", "cancelled")
        text, reason = self._decode(choice, request, typed, work, cancelled)
        return work.completion(text, reason, tuple(other for other in alternatives if other != text))

    def forget(self, session: str) -> None:
        """Drop what is resident for this session alone."""
        self._resident.forget(session)

    def stats(self) -> StoreStats:
        """What the store holds."""
        return self._store.stats()

    def check_integrity(self) -> None:
        """Raise AssertionError where the store's accounts do not add up."""
        self._store.check_integrity()

    def close(self) -> None:
        """Save what is in the workspace to the store, and give back what the store holds of the system."""
        self._resident.save()
        self._store.save()
        self._store.close()

    def _alternatives(
        self, prompt: TokenizedPrompt, first: Choice, request: CompletionRequest, work: _Work, cancelled: Cancelled
    ) -> tuple[str, ...]:
        """As many other texts as the request wants, each greedy from a first token that none before begins with."""
        taken: tuple[int, ...] = (first.token_id,)
        texts: list[str] = []
        for _ in range(request.alternatives):
            typed, branch = self._branches.other_than(taken, prompt.typed), _Work(work.prompt_tokens)
            choice = self._begin(prompt, request, typed, branch, cancelled) if typed.possible else None
            if choice is None:
                break
            text, _reason = self._decode(choice, request, typed, branch, cancelled)
            work.add(branch)
            taken += (choice.token_id,)
            texts.append(text)
        return tuple(dict.fromkeys(filter(None, texts)))

    def _begin(
        self,
        prompt: TokenizedPrompt,
        request: CompletionRequest,
        typed: TypedBytes,
        work: _Work,
        cancelled: Cancelled,
    ) -> Choice | None:
        """The first choice after the prompt; None where it was cancelled before that."""
        matched = self._match(prompt.token_ids, request)
        return self._prefill(prompt.token_ids[matched:], request, typed, work, cancelled)

    def _match(self, token_ids: Sequence[int], request: CompletionRequest) -> int:
        """How many leading tokens need not be computed: never the last, where what follows it is asked for."""
        if not request.reuse:
            self._resident.prepare_cold()
            return 0
        return self._resident.prepare(token_ids[:-1] if request.max_tokens else token_ids, request.session)

    def _prefill(
        self, missing: Sequence[int], request: CompletionRequest, typed: TypedBytes, work: _Work, cancelled: Cancelled
    ) -> Choice | None:
        """Compute the missing tokens of the prompt, in chunks; the first choice, if one is wanted and reached."""
        choice = None
        for start in range(0, len(missing), self._prefill_chunk):
            if cancelled():
                return None
            chunk = missing[start : start + self._prefill_chunk]
            position = len(self._resident.token_ids)
            if request.max_tokens > 0 and start + len(chunk) == len(missing):
                choice = self._model.choose_next(chunk, position, typed.allowed())
            else:
                self._model.prefill(chunk, position)
            self._resident.extend(chunk, is_prompt=request.reuse)
            work.forwards += 1
            work.recomputed_tokens += len(chunk)
        return choice

    def _decode(
        self, choice: Choice, request: CompletionRequest, typed: TypedBytes, work: _Work, cancelled: Cancelled
    ) -> tuple[str, FinishReason]:
        """Generate from the first choice on, until the text or a limit ends it; typed bytes are no part of the text."""
        stream = self.tokenizer.text_stream(skip=len(typed.rest))
        resume_at = 0
        while self.tokenizer.is_text(choice.token_id):
            whole = stream.push(choice.token_id)
            if typed.take(choice.token_id):
                work.recomputed_tokens += 1  # it stands for what was typed, and goes through the model
            else:
                work.logprobs.append(choice.logprob)
            end, resume_at = find_stop(stream.text, request.stop, resume_at)
            if end is not None:
                return stream.text[:end], "stop"
            if not whole:
                return stream.text, "stop"
            if len(work.logprobs) == request.max_tokens:
                return stream.text, "length"
            if cancelled():
                return stream.text, "cancelled"
            token = (choice.token_id,)
            choice = self._model.choose_next(token, len(self._resident.token_ids), typed.allowed())
            self._resident.extend(token, is_prompt=False)
            work.forwards += 1
        return stream.text, "eos"
