"""A text in generation: the completion of a request, or an alternative."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from inference.engine.active_request import OnText
from inference.engine.decoding.drafters import Drafter
from inference.engine.request_cost import RequestCost
from inference.text.healing import TypedBytes
from inference.text.stops import Stops
from inference.text.token_bytes import TextStream
from inference.text.token_ids import TokenIds, packed
from protocol.messages import TokenLogprob


@dataclass(slots=True)
class GrowingText:
    """A text that is being generated, and what its generation needs."""

    typed: TypedBytes  # bytes that its first tokens must spell; not part of the text
    stream: TextStream
    drafter: Drafter | None
    cost: RequestCost
    on_text: OnText | None = None
    decoding_since: float | None = None  # by time.perf_counter
    token_ids: TokenIds = field(default_factory=packed)  # generated so far, including those of typed bytes
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
