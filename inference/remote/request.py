"""A request to a server: its prompt, its place there, its progress and its outcome."""

from __future__ import annotations

from concurrent.futures import Future

from inference.engine.active_request import IsCancelled
from inference.remote.completing import Progress
from inference.remote.slots import Place
from inference.text.prompts import TokenizedPrompt
from protocol.messages import Completion, CompletionRequest, Usage


class RemoteRequest:
    """A request at the server, or one that ended before it got there."""

    def __init__(self, request: CompletionRequest, cancelled: IsCancelled) -> None:
        self.request = request
        self.cancelled = cancelled
        self.outcome: Completion | Exception | None = None
        self.future: Future[Completion] | None = None
        self.place: Place | None = None
        self.prompt: TokenizedPrompt | None = None
        self.progress = Progress()

    @property
    def has_ended(self) -> bool:
        return self.outcome is not None

    def completion(self) -> Completion:
        """The completion of an ended request; raises the error that ended it, if any."""
        if isinstance(self.outcome, Completion):
            return self.outcome
        assert self.outcome is not None, "the request has not ended"
        raise self.outcome

    @property
    def cancelled_completion(self) -> Completion:
        """The empty completion of a request that was cancelled at work."""
        total = len(self.prompt.token_ids) if self.prompt else 0
        recomputed = 0 if self.progress.cached_tokens is None else total - self.progress.cached_tokens
        return Completion("", "cancelled", Usage(total, recomputed, 0, 0, 0.0, 0.0, 0.0))
