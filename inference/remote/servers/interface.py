"""The interface of a server that runs a model: its facts, its tokenizer, and streams of generated tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol

from inference.text.token_ids import TokenIds
from protocol.messages import Sampling

EndReason = Literal["eos", "stop", "length"]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server reports about itself when the core connects."""

    name: str  # the server's name for its model
    model_places: tuple[str, ...]  # where the model may be found: files, folders or hub names, the likeliest first
    context_tokens: int  # longest prompt plus completion
    capacity: int  # requests at work together
    slots: int | None = None  # of llama-server; None if the server places prompts by itself
    block_tokens: int = 1  # the server keeps whole blocks only
    can_constrain: bool = True  # whether a text's first bytes can be forced, which healing needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One request to a server, from token ids."""

    token_ids: TokenIds
    max_tokens: int  # 0 only makes the prompt resident
    typed: str | None = None  # the text must begin with it; "" only keeps out markers, as the longer ones do
    stops: tuple[str, ...] = ()  # the text ends before each of these
    end_ids: tuple[int, ...] = ()  # tokens that end the text besides the model's own end
    session: str  # an opaque name; prompts of one session share their beginnings
    slot: int | None = None
    reuse: bool = True  # False computes the whole prompt
    salt: str = ""  # an opaque name; the server reuses nothing that was computed under another
    top: int = 1  # the most probable tokens to report with each token
    sampling: Sampling | None = None  # None is greedy


@dataclass(frozen=True, slots=True)
class Token:
    """A generated token; a server that reports no ids or log-probabilities leaves them None."""

    id: int | None
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()  # ids and log-probabilities, the most probable first


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the answer. Servers hold back text whose last character is incomplete, not its tokens."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    end: EndReason | None = None  # set in the last piece but one, or in the last
    cached_tokens: int | None = None  # prompt tokens that were resident, once the server has reported them
    prefilled: tuple[int, int] | None = None  # of a prompt that takes several steps: tokens resident now, and all


class ModelServer(Protocol):
    """A connection to one server. Errors are EngineUnavailable, Busy or BadInput."""

    async def facts(self) -> ServerFacts:
        """Ask for the facts, and wait while the server loads its model."""
        ...

    async def tokenize(self, text: str) -> list[int] | None:
        """The server's own tokens of a text; None if it cannot say."""
        ...

    def stream(self, query: Query) -> AsyncGenerator[Piece]:
        """The answer as it is generated. Closing the generator closes the request and stops the server's work."""
        ...

    async def erase(self, slot: int) -> bool:
        """Drop a slot's prompt; False if the server cannot."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
