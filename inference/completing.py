"""How a request is completed: matched, prefilled, decoded, with a forward asked for wherever one is needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from inference.branches import Branches
from inference.healing import Healer, TypedBytes
from inference.model import Choice
from inference.prompts import TokenizedPrompt, tokenize_prompt
from inference.resident import ResidentPrompt
from inference.run import Steps, Stopped
from inference.slots import Slots
from inference.stops import find_stop
from inference.tokenization import TextTokenizer
from inference.work import Work
from protocol.errors import BadInput
from protocol.messages import MAX_ALTERNATIVES, Completion, CompletionRequest, FinishReason


@dataclass(frozen=True, slots=True)
class Tools:
    """What the completing of all requests shares."""

    tokenizer: TextTokenizer
    healer: Healer | None
    branches: Branches
    slots: Slots
    context_tokens: int
    prefill_chunk: int  # tokens


def complete(request: CompletionRequest, tools: Tools) -> Steps[Completion]:
    """The steps from a request to its completion; BadInput where the request cannot be used."""
    if request.max_tokens < 0:
        raise BadInput(f"max_tokens is {request.max_tokens}: it has to be 0 or more")
    if not 0 <= request.alternatives <= MAX_ALTERNATIVES:
        raise BadInput(f"alternatives is {request.alternatives}: it has to be between 0 and {MAX_ALTERNATIVES}")
    prompt = tokenize_prompt(request.prompt, tools.tokenizer, tools.context_tokens, request.max_tokens, tools.healer)
    shared = prompt.token_ids if request.reuse else ()
    with tools.slots.lend(request.session, shared) as resident:
        return (yield from _Completing(request, prompt, resident, tools).steps())


class _Completing:
    """One request, with the workspace that it has for as long as it is at work."""

    def __init__(
        self, request: CompletionRequest, prompt: TokenizedPrompt, resident: ResidentPrompt, tools: Tools
    ) -> None:
        self._request = request
        self._prompt = prompt
        self._resident = resident
        self._tools = tools

    def steps(self) -> Steps[Completion]:
        """Prefill, other beginnings if they are asked for, and the suggestion itself."""
        work = Work(len(self._prompt.token_ids))
        try:
            return (yield from self._complete(work))
        except Stopped:
            return work.completion("", "cancelled")

    def _complete(self, work: Work) -> Steps[Completion]:
        typed = TypedBytes(self._prompt.typed, self._tools.healer)
        choices = yield from self._prefill(typed, work)
        work.prefilled = time.perf_counter()
        if not choices:
            return work.completion("", "length")
        alternatives: tuple[str, ...] = ()
        if self._request.alternatives:
            alternatives = yield from self._alternatives(choices[0], work)
            # The suggestion comes last, so that it is resident when it is accepted.
            choices = yield from self._prefill(typed, work)
        text, reason = yield from self._decode(choices, typed, work)
        return work.completion(text, reason, tuple(other for other in alternatives if other != text))

    def _prefill(self, typed: TypedBytes, work: Work) -> Steps[tuple[Choice, ...]]:
        """Compute what is missing of the prompt, in chunks; what follows it, where that is asked for."""
        wanted = min(1, self._request.max_tokens)
        missing = self._prompt.token_ids[self._match() :]
        choices: tuple[Choice, ...] = ()
        for start in range(0, len(missing), self._tools.prefill_chunk):
            token_ids = missing[start : start + self._tools.prefill_chunk]
            is_last = start + len(token_ids) == len(missing)
            choices = yield (
                self._resident.chunk(token_ids, wanted, typed.allowed()) if is_last else self._resident.chunk(token_ids)
            )
            self._resident.extend(token_ids, is_prompt=self._request.reuse)
            work.forwards += 1
            work.recomputed_tokens += len(token_ids)
        return choices

    def _match(self) -> int:
        """How many leading tokens need not be computed: never the last, where what follows it is asked for."""
        if not self._request.reuse:
            self._resident.prepare_cold()
            return 0
        token_ids = self._prompt.token_ids
        wanted = token_ids[:-1] if self._request.max_tokens else token_ids
        return self._resident.prepare(wanted, self._request.session)

    def _alternatives(self, first: Choice, work: Work) -> Steps[tuple[str, ...]]:
        """As many other texts as the request wants, each greedy from a first token that none before begins with."""
        taken: tuple[int, ...] = (first.token_id,)
        texts: list[str] = []
        for _ in range(self._request.alternatives):
            typed = self._tools.branches.other_than(taken, self._prompt.typed)
            if not typed.possible:
                break
            branch = Work(work.prompt_tokens)
            try:
                choices = yield from self._prefill(typed, branch)
                text, _reason = yield from self._decode(choices, typed, branch)
            finally:
                work.add(branch)
            taken += (choices[0].token_id,)
            texts.append(text)
        return tuple(dict.fromkeys(filter(None, texts)))

    def _decode(self, choices: Sequence[Choice], typed: TypedBytes, work: Work) -> Steps[tuple[str, FinishReason]]:
        """Generate from the first choice on, until the text or a limit ends it; typed bytes are no part of the text."""
        tokenizer = self._tools.tokenizer
        stream = tokenizer.text_stream(skip=len(typed.rest))
        resume_at = 0
        (choice,) = choices
        while tokenizer.is_text(choice.token_id):
            whole = stream.push(choice.token_id)
            if typed.take(choice.token_id):
                work.recomputed_tokens += 1  # it stands for what was typed, and goes through the model
            else:
                work.logprobs.append(choice.logprob)
            end, resume_at = find_stop(stream.text, self._request.stop, resume_at)
            if end is not None:
                return stream.text[:end], "stop"
            if not whole:
                return stream.text, "stop"
            if len(work.logprobs) == self._request.max_tokens:
                return stream.text, "length"
            token_ids = (choice.token_id,)
            (choice,) = yield self._resident.chunk(token_ids, 1, typed.allowed())
            self._resident.extend(token_ids, is_prompt=False)
            work.forwards += 1
        return stream.text, "eos"
