"""The request: one mutable value on its way from a client through queue and engine to its answer, and its cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from inference.engine.sessions import session_key
from kv_store.interface import SessionKey
from protocol.errors import BadInput, Busy, Cancelled
from protocol.messages import Alternative, Completion, CompletionRequest, FinishReason, TokenLogprob, Usage


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

    While it waits, the call that ends its wait writes its outcome; from its beginning on the thread that runs it alone
    writes it, except for `cancelled` and `gives_way`, which any thread may set. It calls `changed`, which must not
    block, after each forward of a long prompt (`prefilled`), after each one that added to a text that is wanted while
    it `grows` (`text`), and once with the `outcome`.
    """

    spec: CompletionRequest
    client: str = ""
    user: str = ""  # empty for the core's own token
    changed: Callable[[Request], None] = lambda _: None
    supersedes: bool = True  # the older requests of the client's session
    grows: bool = False
    submitted: float = field(default_factory=time.perf_counter)
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

    def __post_init__(self) -> None:
        self.session = session_key(self.spec.session, self.user)
        self.key = self.client, self.session if self.supersedes else id(self)
        self.turn = turn_of(self.client, self.user)
        self.is_prefetch = self.spec.max_tokens == 0
        self.writes_several = self.spec.alternatives > 0 or self.spec.best_of > 1

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
    """Raise BadInput if the request contradicts itself; both engines call it, whoever sent it."""
    if spec.sampling is not None and (spec.alternatives or spec.best_of > 1):
        raise BadInput("several texts are greedy, and cannot be sampled")
