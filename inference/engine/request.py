"""The request: one mutable value on its way from a client through queue and engine to its answer, and its cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from inference.engine.sessions import session_key
from kv_store.interface import SessionKey
from protocol.errors import BadInput, Busy, Cancelled
from protocol.messages import (
    MAX_ALTERNATIVES,
    MAX_COPIED_CHARS,
    MAX_STOP_CHARS,
    MAX_STOP_TEXTS,
    MAX_TOP_LOGPROBS,
    Alternative,
    Completion,
    CompletionRequest,
    FinishReason,
    TokenLogprob,
    Usage,
)


@dataclass(slots=True)
class Cost:
    """The cost of a request so far: tokens, forwards, and seconds by time.perf_counter."""

    prompt_tokens: int = 0
    recomputed_tokens: int = 0
    generated_tokens: int = 0  # of all its texts
    forwards: int = 0  # that included a chunk of this request
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    block_tokens: int = 1  # the engine keeps KV in blocks of so many tokens
    started: float = field(default_factory=time.perf_counter)
    prepared: float | None = None
    prefilled: float | None = None

    def completion(
        self,
        text: str,
        reason: FinishReason,
        mean_logprob: float | None = None,
        alternatives: tuple[Alternative, ...] = (),
        tokens: tuple[TokenLogprob, ...] = (),
    ) -> Completion:
        """The completion, with the cost as its usage."""
        now = time.perf_counter()
        prepared = now if self.prepared is None else self.prepared
        prefilled = now if self.prefilled is None else self.prefilled
        usage = Usage(
            prompt_tokens=self.prompt_tokens,
            recomputed_tokens=self.recomputed_tokens,
            generated_tokens=self.generated_tokens,
            forwards=self.forwards,
            queue_ms=0.0,
            prefill_ms=(prefilled - prepared) * 1e3,
            decode_ms=(now - prefilled) * 1e3,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            prepare_ms=(prepared - self.started) * 1e3,
            block_tokens=self.block_tokens,
        )
        return Completion(text, reason, usage, mean_logprob, alternatives, tokens)


def turn_of(client: str, user: str) -> str:
    """The name under which a user takes turns and is limited; a client without a user counts as one."""
    return f"user {user}" if user else client


@dataclass(slots=True, eq=False)
class Request:
    """A completion that a client wants, what is known of it so far, and at last its outcome.

    The thread that runs the request alone writes it, except for `cancelled` and `gives_way`, which any thread may set.
    It calls `changed`, which must not block, after each forward of a long prompt (`prefilled`), after each one that
    added to a text that is wanted while it `grows` (`text`), and once with the `outcome`.
    """

    spec: CompletionRequest
    client: str = ""
    user: str = ""  # empty for the core's own token
    changed: Callable[[Request], None] = lambda _: None
    supersedes: bool = True  # the older requests of the client's session
    grows: bool = False
    submitted: float = field(default_factory=time.perf_counter)
    unanswered_since: float = field(default_factory=time.perf_counter)  # of the first key that waits for an answer
    queue_ms: float = 0.0  # from its submission until it last began
    cancelled: bool = False
    gives_way: bool = False  # returns to the queue to make room for another user's request
    cost: Cost = field(default_factory=Cost)
    prefilled: int = 0  # tokens of the prompt that are resident
    text: str = ""  # what no stop can take away of it; one that gave way and resumes begins with an empty text again
    outcome: Completion | Exception | None = None
    session: SessionKey = field(init=False)  # of the short prompt, if `spec` has that in place of the client's
    key: tuple[str, SessionKey | int] = field(init=False)  # the client's session, or one that is its own
    turn: str = field(init=False)  # the line that it waits in: its user's, or its client's if it has no user
    is_prefetch: bool = field(init=False)  # makes a prompt resident, and gives way to every request for a suggestion
    writes_several: bool = field(init=False)
    layout: int = field(init=False)  # a digest of the user and the prompt's parts that stay while the user types on

    def __post_init__(self) -> None:
        self.session = session_key(self.spec.session, self.user)
        self.key = self.client, self.session if self.supersedes else id(self)
        self.turn = turn_of(self.client, self.user)
        self.is_prefetch = self.spec.max_tokens == 0
        self.writes_several = self.spec.alternatives > 0 or self.spec.best_of > 1
        prompt = self.spec.prompt
        parts = prompt.context, prompt.prefix, prompt.suffix, prompt.token_ids, prompt.marked
        self.layout = hash((self.turn, parts))

    @property
    def is_unwanted(self) -> bool:
        """Whether the engine has to end it before its next forward."""
        return self.cancelled or self.gives_way

    @property
    def has_ended(self) -> bool:
        return self.outcome is not None

    @property
    def kind(self) -> str:
        """For counters: "prefetch" if it only makes a prompt resident, else "suggestion"."""
        return "prefetch" if self.is_prefetch else "suggestion"

    @property
    def result(self) -> str:
        """For counters, of an ended request: "completed", "refused", "cancelled" or "failed"."""
        if isinstance(self.outcome, Completion):
            return "completed"
        if isinstance(self.outcome, Busy):
            return "refused"
        return "cancelled" if isinstance(self.outcome, Cancelled) else "failed"

    def start(self) -> None:
        """Begin at an engine, at first or anew after it gave way."""
        self.cost, self.prefilled, self.text, self.outcome = Cost(), 0, "", None

    def report_prefill(self, tokens: int) -> None:
        """Note how many tokens of the prompt are resident."""
        self.prefilled = tokens
        self.changed(self)

    def report_text(self, text: str) -> None:
        """Note the text so far, which begins with the one before it."""
        self.text = text
        self.changed(self)

    def completion(self) -> Completion:
        """The completion of an ended request; raises the error that ended it, if any."""
        if isinstance(self.outcome, Completion):
            return self.outcome
        assert self.outcome is not None, "the request has not ended"
        raise self.outcome


def validate(spec: CompletionRequest) -> None:
    """Raise BadInput, with the offending value, if the request cannot be served as it wants; both engines call it."""
    if spec.max_tokens < 0:
        raise BadInput(f"max_tokens must be 0 or more, not {spec.max_tokens}")
    if not 0 <= spec.alternatives <= MAX_ALTERNATIVES:
        raise BadInput(f"alternatives must be between 0 and {MAX_ALTERNATIVES}, not {spec.alternatives}")
    if not 1 <= spec.best_of <= MAX_ALTERNATIVES + 1:
        raise BadInput(f"best_of must be between 1 and {MAX_ALTERNATIVES + 1}, not {spec.best_of}")
    sampling, top = spec.sampling, spec.top_logprobs
    if top is not None and not 0 <= top <= MAX_TOP_LOGPROBS:
        raise BadInput(f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}, not {top}")
    if spec.max_decode_ms < 0:
        raise BadInput(f"max_decode_ms must be 0 or more, not {spec.max_decode_ms}")
    if spec.max_prefill_ms < 0:
        raise BadInput(f"max_prefill_ms must be 0 or more, not {spec.max_prefill_ms}")
    if not 0 <= spec.min_probability <= 1:
        raise BadInput(f"min_probability must be between 0 and 1, not {spec.min_probability}")
    if len(spec.copies) > MAX_COPIED_CHARS:
        raise BadInput(f"copies must have at most {MAX_COPIED_CHARS} characters, not {len(spec.copies)}")
    if len(spec.stop_texts) > MAX_STOP_TEXTS:
        raise BadInput(f"stop_texts must hold at most {MAX_STOP_TEXTS} texts, not {len(spec.stop_texts)}")
    wrong = next((stop for stop in spec.stop_texts if not 0 < len(stop) <= MAX_STOP_CHARS), None)
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
    if spec.alternatives:
        raise BadInput("alternatives are greedy, and cannot be sampled")
    if spec.best_of > 1:
        raise BadInput("the best of several texts is chosen among greedy ones, not sampled ones")
