"""A request to a server: its prompt, its place there, its progress and its outcome."""

from __future__ import annotations

from concurrent.futures import Future

from inference.engine.active_request import EngineRequest, IsCancelled
from inference.engine.decoding.typed_choices import TypedStart
from inference.engine.sessions import is_anonymous
from inference.remote.completing import Progress
from inference.remote.slots import Place
from inference.text.prompts import TokenizedPrompt
from protocol.messages import Completion, CompletionRequest, Usage

KEY_TOKENS = 64
"""Tokens by which anonymous prompts are told apart: a new keystroke leaves them as they are."""


class RemoteRequest(EngineRequest):
    """A request at the server, or one that ended before it got there."""

    def __init__(self, request: CompletionRequest, cancelled: IsCancelled) -> None:
        self.request = request
        self.cancelled = cancelled
        self.future: Future[Completion] | None = None
        self.start: TypedStart | None = None
        self.place: Place | None = None
        self.progress = Progress()

    @property
    def prompt(self) -> TokenizedPrompt:
        """The prompt, which must be known."""
        assert self.start is not None
        return self.start.prompt

    @property
    def key(self) -> str:
        """What a router chooses its server by: the session, or the beginning of an anonymous prompt."""
        if not is_anonymous(self.request.session):
            return self.request.session
        return self.prompt.token_ids[:KEY_TOKENS].tobytes().hex()

    @property
    def cancelled_completion(self) -> Completion:
        """The empty completion of a request that was cancelled at work."""
        progress = self.progress
        total = len(self.prompt.token_ids) if self.start else 0
        has_computed = progress.is_prefilled or progress.cached_tokens is not None
        recomputed = progress.recomputed(total) if has_computed else 0
        return Completion("", "cancelled", Usage(total, recomputed, progress.generated, 0, 0.0, 0.0, 0.0))
