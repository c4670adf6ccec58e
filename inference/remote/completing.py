"""Completes one request at a server: healing, stop rule, limits, alternatives and cost, over a stream of tokens."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import takewhile

from msgspec import structs

from inference.backends.model import Choice
from inference.engine.partial_words import TypedStart
from inference.engine.request import Cost, Request
from inference.engine.search import TRIES, Branch, branches
from inference.engine.writer import spelling
from inference.remote.server import GenerationQuery, ModelServer, Piece, Token
from inference.remote.slots import RemoteSlot
from inference.text.prompts import TokenizedPrompt
from inference.text.stops import Stops
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import TextTokenizer
from protocol.errors import EngineUnavailable, MidfillError
from protocol.messages import Alternative, Completion, CompletionRequest, FinishReason, TokenLogprob

TOPS = 64
"""Most probable tokens to ask for if alternatives are wanted: not every one continues what was typed."""
NEWLINES = ("\n", "\r")
_BRANCHES_AT_ONCE = 4  # of a request's alternatives: one request must not take the whole engine

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RemoteRun:
    """A request at the server: its prompt and its slot there, and what is known of its answer so far."""

    request: Request
    start: TypedStart
    query: GenerationQuery
    slot: RemoteSlot
    expected_cached: int  # prompt tokens that the server should have resident
    mark: int = 0  # tokens that are computed first and alone, so that the server keeps its states behind them
    cost: Cost = field(init=False)
    future: Future[Completion] | None = None
    cached_tokens: int | None = None  # as the server reports them
    token_ids: TokenIds = field(default_factory=packed)  # generated, those of what was typed included, as far as known
    generated: int = 0  # how many were
    is_prefilled: bool = False
    has_ended: bool = False  # the server sent its whole answer
    _is_dropped: bool = False
    _reporting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.cost = self.request.cost

    def drop(self) -> None:
        """End it, on the model thread; nothing is reported from now on, since the request may begin anew."""
        with self._reporting:
            self._is_dropped = True
        assert self.future is not None
        self.future.cancel()

    def report_text(self, text: str) -> None:
        """Report the text so far, on the thread of the event loop."""
        with self._reporting:
            if not self._is_dropped:
                self.request.report_text(text)

    def note(self, piece: Piece) -> None:
        """Take over what a piece of the answer reports."""
        if piece.prefilled is not None:
            with self._reporting:
                if not self._is_dropped:
                    self.request.report_prefill(piece.prefilled[0])
        if self.cached_tokens is None:  # behind the mark, the rest would report the mark as cached
            self.cached_tokens = piece.cached_tokens
        for token in piece.tokens:
            if token.id is not None and len(self.token_ids) == self.generated:
                self.token_ids.append(token.id)
            self.generated += 1
        if (piece.tokens or piece.end) and not self.is_prefilled:
            self.cost.prefilled = time.perf_counter()
            self.is_prefilled = True

    @property
    def recomputed(self) -> int:
        """Prompt tokens that the server computed, by its report or as expected."""
        total = self.cost.prompt_tokens
        return total - min(self.expected_cached if self.cached_tokens is None else self.cached_tokens, total)

    def cancelled(self) -> Completion:
        """The empty completion of a request that was cancelled at work."""
        self.cost.recomputed_tokens = self.recomputed if self.is_prefilled or self.cached_tokens is not None else 0
        self.cost.generated_tokens = self.generated
        return self.cost.completion("", "cancelled")


@dataclass(slots=True)
class _Text:
    """A text in generation, without the typed bytes that its first tokens spell."""

    stops: Stops
    max_tokens: int
    typed: str
    typed_left: int  # bytes
    since: float | None = None  # its first token, by time.perf_counter
    whole: str = ""  # with what was typed
    typed_tokens: list[Token] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.whole[len(self.typed) :]

    def take(self, piece: Piece, tokenizer: TextTokenizer) -> tuple[str, FinishReason] | None:
        """Add a piece; the text and why it ends, or None if it goes on."""
        before = len(self.text)
        known = len(self.tokens)
        self.whole += piece.text
        is_over = self._take_tokens(piece.tokens, tokenizer)
        if piece.text:  # ends with a whole character, even if the server has reported fewer tokens
            self.typed_left = len(self.typed.encode()) - len(self.whole.encode())
        if not self.whole.startswith(self.typed[: len(self.whole)]):
            return "", "stop"  # the server does not force what was typed
        text = self.text
        self._note_logprobs(self.tokens[known:], text[before:])
        end = self.stops.find(text)
        if end is not None:
            return text[:end], "stop"
        if is_over:
            return self.stops.last(text, "eos")
        if len(self.tokens) >= self.max_tokens:
            return self.stops.last(text, "length")
        return self.stops.last(text, piece.end) if piece.end is not None else None

    def _take_tokens(self, tokens: tuple[Token, ...], tokenizer: TextTokenizer) -> bool:
        """Count the tokens; True if one of them is no text, which ends the completion."""
        for token in tokens:
            spelled = b"" if token.id is None else tokenizer.bytes_of(token.id)
            if spelled is None:
                return True
            if self.typed_left > 0 and len(spelled) <= self.typed_left:
                self.typed_tokens.append(token)
            else:
                self.tokens.append(token)
            self.typed_left -= len(spelled)
        return False

    def _note_logprobs(self, tokens: list[Token], text: str) -> None:
        """Record the log-probabilities of the tokens that added `text`; the last of them carries the text."""
        for number, token in enumerate(tokens, start=1):
            logprob = 0.0 if token.logprob is None else token.logprob
            self.logprobs.append(TokenLogprob(text if number == len(tokens) else "", logprob))

    @property
    def count(self) -> int:
        """Tokens generated so far, with those of what was typed."""
        return len(self.typed_tokens) + len(self.tokens)

    @property
    def probability(self) -> float:
        """The product of its tokens' probabilities, where they are known."""
        return math.exp(sum(token.logprob or 0.0 for token in self.tokens))

    @property
    def mean_logprob(self) -> float | None:
        known = [token.logprob for token in self.tokens if token.logprob is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class RemoteCompleter:
    """Completes one request, whose prompt has a slot at the server."""

    server: ModelServer
    tokenizer: TextTokenizer
    run: RemoteRun

    @property
    def spec(self) -> CompletionRequest:
        return self.run.request.spec

    @property
    def prompt(self) -> TokenizedPrompt:
        return self.run.start.prompt

    async def complete(self) -> Completion:
        """The completion; the errors are the server's."""
        run = self.run
        if run.mark:
            await self._compute(self.prompt.token_ids[: run.mark])
        if self.spec.max_tokens == 0:
            await self._compute(self.prompt.token_ids)
            run.is_prefilled = run.has_ended = True
            return self._completion("", "length", _Text(self._stops(), 0, "", 0))
        main = self._text()
        text, reason = await self._generate(self._main_query(), main, run)
        alternatives: tuple[Alternative, ...] = ()
        extra = 0  # tokens
        if self.spec.alternatives:
            alternatives, extra = await self._alternatives(main, text)
        return self._completion(text, reason, main, alternatives, extra)

    async def _compute(self, token_ids: TokenIds) -> None:
        """Make the prompt, or its beginning, resident."""
        is_whole = len(token_ids) == len(self.prompt.token_ids)
        async with aclosing(self.server.stream(replace(self.run.query, token_ids=token_ids, max_tokens=0))) as pieces:
            async for piece in pieces:
                self.run.note(piece if is_whole else replace(piece, tokens=(), end=None))

    def _text(self) -> _Text:
        typed = self.prompt.typed
        return _Text(self._stops(), self.spec.max_tokens, typed.decode(), len(typed))

    def _stops(self) -> Stops:
        return Stops(self.spec.stop, self.spec.stop_texts, self.spec.prompt.suffix)

    def _main_query(self) -> GenerationQuery:
        typed = self.prompt.typed.decode()
        is_healed = bool(self.run.start.stable.typed)  # then the same tokens are allowed, whatever earlier keys chose
        return replace(
            self.run.query,
            typed=typed if is_healed else None,
            max_tokens=self.spec.max_tokens + len(self.prompt.typed),
            stops=_server_stops(self.spec, typed),
            top=TOPS if self.spec.alternatives else 1,
            sampling=self.spec.sampling,
        )

    async def _generate(self, query: GenerationQuery, text: _Text, run: RemoteRun | None = None) -> tuple[str, FinishReason]:
        """Read the stream to the text's end, then close it. A stream that ended by itself is read for its usage.

        `run` takes over what the answer reports; None for an alternative.
        """
        ended: tuple[str, FinishReason] | None = None
        known, server_ends = text.count, False
        async with aclosing(self.server.stream(query)) as pieces:
            async for piece in pieces:
                if run is not None:
                    run.note(piece)
                if text.since is None and (piece.tokens or piece.end):
                    text.since = time.perf_counter()
                ended = ended or text.take(piece, self.tokenizer) or self._limited(text)
                if ended is None and run is not None and run.request.grows:
                    run.report_text(text.text[: text.stops.stable(text.text)])
                server_ends = server_ends or piece.end is not None or text.count - known >= query.max_tokens
                if ended is not None and not server_ends:
                    break  # otherwise the rest is the end of the stream, and the connection stays open
            else:
                if run is not None:
                    run.has_ended = True
        if ended is None:
            raise EngineUnavailable("the engine closed the connection before the end of its answer")
        return ended

    def _limited(self, text: _Text) -> tuple[str, FinishReason] | None:
        """The end of a text that has become too improbable, or has a newline and has taken too long."""
        limit_ms, is_late = self.spec.max_decode_ms, False
        if limit_ms and text.since is not None and "\n" in text.text:
            is_late = (time.perf_counter() - text.since) * 1e3 > limit_ms
        if is_late or text.probability < self.spec.min_probability:
            return text.stops.last(text.text, "length")
        return None

    async def _alternatives(self, main: _Text, text: str) -> tuple[tuple[Alternative, ...], int]:
        """Texts that leave the completion at a token, the more probable beginnings first, and the tokens of all."""
        reported = (*main.typed_tokens, *main.tokens)
        chosen = [
            Choice(token.id, token.logprob or 0.0, token.top)
            for token in takewhile(lambda token: token.id is not None, reported)
            if token.id is not None
        ]
        found: dict[str, Alternative] = {}
        tokens, wanted = 0, self.spec.alternatives
        few = asyncio.Semaphore(_BRANCHES_AT_ONCE)
        others = branches(chosen, self.prompt.typed, text, self.tokenizer.bytes_of)
        others.sort(key=lambda branch: -branch.logprob)
        left = list(filter(None, map(self._beginning, others)))[: TRIES * wanted]
        while left and len(found) < wanted:
            count = wanted - len(found)
            answers = await asyncio.gather(*(self._branch(*beginning, few) for beginning in left[:count]))
            left = [] if None in answers else left[count:]  # a server that fails one is not asked for more
            for alternative, generated in filter(None, answers):
                tokens += generated
                if alternative.text not in ("", text):
                    found.setdefault(alternative.text, alternative)
        return tuple(found.values()), tokens

    def _beginning(self, branch: Branch) -> tuple[TokenIds, str] | None:
        """The tokens that an alternative begins with, and their text; None if that would end within a character."""
        token_ids = packed(choice.token_id for choice in (*branch.kept, branch.choice))
        spelled = b"".join(self.tokenizer.bytes_of(token_id) or b"" for token_id in token_ids)
        try:
            return token_ids, spelled.decode()
        except UnicodeDecodeError:
            return None

    async def _branch(self, token_ids: TokenIds, beginning: str, few: asyncio.Semaphore) -> tuple[Alternative, int] | None:
        """An alternative and the tokens generated for it; None if the server fails it: the completion is whole."""
        text = self._text()
        ended = text.take(Piece(beginning, tuple(Token(token_id, None) for token_id in token_ids)), self.tokenizer)
        known = len(text.tokens)
        if ended is None:
            query = replace(
                self.run.query,
                token_ids=self.prompt.token_ids + token_ids,
                max_tokens=self.spec.max_tokens - known,
                stops=_server_stops(self.spec, ""),
                reuse=self.spec.reuse,  # the slot has this request's prompt now
            )
            try:
                async with few:
                    ended = await self._generate(query, text)
            except MidfillError as error:
                log.info("an alternative is left out: %s", error)
                return None
        return Alternative(*ended), 1 + len(text.tokens) - known  # the token that it branches with is new

    def _completion(
        self, text: str, reason: FinishReason, main: _Text, alternatives: tuple[Alternative, ...] = (), extra: int = 0
    ) -> Completion:
        cost = self.run.cost
        cost.recomputed_tokens = self.run.recomputed + len(main.typed_tokens)
        cost.generated_tokens = len(main.tokens) + extra
        tokens = spelling(main.logprobs, text) if self.spec.token_logprobs else ()
        completion = cost.completion(text, reason, main.mean_logprob, alternatives, tokens)
        return structs.replace(completion, is_short=self.run.request.session.is_short)


def _server_stops(spec: CompletionRequest, typed: str) -> tuple[str, ...]:
    """The strings that end the text, so that the server ends it by itself; not those that begin in what was typed."""
    lines = NEWLINES if spec.stop.indent is None else ()
    return tuple(stop for stop in (*lines, *spec.stop_texts) if not _begins_in(stop, typed))


def _begins_in(stop: str, typed: str) -> bool:
    return stop in typed or any(typed.endswith(stop[:count]) for count in range(1, len(stop)))
