"""The values that cross between the language server and the inference core: requests, answers, costs and sizes."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from msgspec import Meta, Struct

PROTOCOL_VERSION = 15
MAX_ALTERNATIVES = 16  # more are of no use, and each takes model time
MAX_STOP_TEXTS = 64
MAX_STOP_CHARS = 256
MAX_SNIPPETS = 1024
MAX_COPIED_CHARS = 65_536
MAX_SESSION_CHARS = 16_384  # of a document's URI, with the client's name

Count = Annotated[int, Meta(ge=0)]
StopText = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
StopTexts = Annotated[tuple[StopText, ...], Meta(max_length=MAX_STOP_TEXTS)]
SessionName = Annotated[str, Meta(max_length=MAX_SESSION_CHARS)]

Beginnings = Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=64)]
"""Brackets or words that a line begins with."""

ANONYMOUS = "anonymous"
"""The session of requests without one: unrelated prompts, which the core distinguishes by their text."""

FinishReason = Literal["eos", "stop", "length", "cancelled"]
CoreState = Literal["unloaded", "loading", "ready", "failed", "stopped"]  # stopped: it exits now, by request


class Value(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all messages: immutable; in JSON an object of its fields without those that have their default."""


class Snippet(Value, frozen=True):
    """A snippet of another file, before the prefix."""

    path: str
    text: str


class Prompt(Value, frozen=True):
    """The text of an EFIM prompt: `<PRE> prefix <SUF> suffix <MID> increment` (arXiv 2505.21889, section 4).

    Each field is a fragment, tokenized on its own. With `order="spm"` the suffix comes first; PSM is EFIM with an empty
    increment.
    """

    prefix: str
    suffix: str
    increment: str = ""
    context: Annotated[tuple[Snippet, ...], Meta(max_length=MAX_SNIPPETS)] = ()
    order: Literal["psm", "spm"] = "psm"
    token_ids: tuple[int, ...] = ()  # if not empty, the whole prompt, computed as it is; the texts are then empty
    marked: tuple[str, ...] = ()  # the same as texts and marker tokens in turn, a text first


class StopRule(Value, frozen=True):
    """The end of a completion, besides the model's own end; `protocol/stopping.py` applies it.

    With `indent` None it is one line, and ends before the first newline. Otherwise it is a block: it ends before the
    first non-blank line that is indented by less than `indent` columns (the rest of the cursor's own line does not
    count as a line). Such a line belongs to the block all the same if it begins with one of `depthless`, or if it
    lacks one column and begins with one of `joining`; one that begins with one of `closers`, where the document lacks
    them, is the block's last line. A line in a string that the completion has opened by one of `quotes` belongs to the
    block if none of the string's lines before it is as deep as the block; a quote that begins with `<<` opens a
    heredoc, whose lines all belong to the block. `opened` is what the completion goes on behind: such a quote, or a
    heredoc's with its word, and the space or newline between. With `one_line` the block must begin on the next line: a
    completion that has text on the cursor's line is one line. With `opens` the cursor's line opens the block, which is
    as deep as its first line where that is indented by less than `indent`; with `one_line`, too, at the margin there
    is none.
    """

    indent: int | None = None
    one_line: bool = False
    opens: bool = False
    closers: Beginnings = ()
    joining: Beginnings = ()
    depthless: Beginnings = ()
    quotes: Beginnings = ()
    opened: Annotated[str, Meta(max_length=64)] = ""
    tab_columns: Literal[4, 8] = 4


class Sampling(Value, frozen=True):
    """How tokens are drawn from the model's probabilities. The same seed draws the same text."""

    temperature: Annotated[float, Meta(gt=0)]
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0  # only the most probable tokens whose probabilities sum up to this
    top_k: Count = 0  # only so many of the most probable tokens; 0 means all
    seed: int = 0


class CompletionRequest(Value, frozen=True):
    """Requests a completion, or with `max_tokens=0` only to make the prompt resident ahead of need.

    `session` names the document, as `client/document`: the newest request of a session supersedes the older ones.
    `reuse=False` computes everything cold (the strategy `none`, and checks of exactness). `alternatives` is the most that
    are returned besides the completion itself. With `best_of` above 1 the core writes so many texts, or one more than
    `alternatives` if that is more, and orders them by how well they fit between prefix and suffix; an engine behind a
    server cannot, and its most probable text comes first. The text ends before the first of the `stop_texts`. Decoding is
    greedy without `sampling`, which several texts exclude. With `token_logprobs` the completion has `tokens`. After
    `max_decode_ms` a text ends that has a newline already; 0 means never. A text whose probability, the product of its
    tokens', has fallen below `min_probability` ends there. `copies` is a text that the completion probably repeats with
    few changes, as a next edit does with what it rewrites: the engine drafts from it. Where computing what is missing of
    the prompt would take longer than `max_prefill_ms`, the text is written from the short prompt, what stands near the
    cursor: the client then has the whole one made resident; 0 means never.
    """

    session: SessionName
    prompt: Prompt
    max_tokens: Count
    stop: StopRule = StopRule()
    reuse: bool = True
    alternatives: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] = 0
    stop_texts: StopTexts = ()
    sampling: Sampling | None = None
    token_logprobs: bool = False
    max_decode_ms: Count = 0
    min_probability: Annotated[float, Meta(ge=0, le=1)] = 0.0
    best_of: Annotated[int, Meta(ge=1, le=MAX_ALTERNATIVES + 1)] = 1
    copies: Annotated[str, Meta(max_length=MAX_COPIED_CHARS)] = ""
    max_prefill_ms: Count = 0


class Usage(Value, frozen=True):
    """The cost of a request in tokens, forwards and milliseconds."""

    prompt_tokens: int
    recomputed_tokens: int  # prompt tokens pushed through the model, each counted once
    generated_tokens: int
    forwards: int
    queue_ms: float
    prefill_ms: float
    decode_ms: float
    drafted_tokens: int = 0  # proposed by a drafter, and verified in a forward
    accepted_tokens: int = 0  # right ones among them; each saved one forward
    prepare_ms: float = 0.0  # tokenization and prefix match, before prefill
    block_tokens: int = 1  # the engine keeps KV in blocks of so many tokens


class TokenLogprob(Value, frozen=True):
    """A generated token: its text, and the natural logarithm of its probability."""

    text: str  # empty if the token ends within a character
    logprob: float


class Alternative(Value, frozen=True):
    """Another text for the same prompt."""

    text: str
    finish_reason: FinishReason


class Completion(Value, frozen=True):
    """The answer to a `CompletionRequest`."""

    text: str
    finish_reason: FinishReason
    usage: Usage
    mean_logprob: float | None = None  # over the tokens generated for `text`; None without any
    alternatives: tuple[Alternative, ...] = ()  # other texts, the better ones first
    tokens: tuple[TokenLogprob, ...] = ()  # of `text`; only if requested by `token_logprobs`
    is_short: bool = False  # written from the short prompt, which `usage` counts


class TierMemory(Value, frozen=True):
    """The KV that one tier of the store holds."""

    name: str  # "device", "host", "disk"; "engine" for what an engine in another process holds
    used_bytes: int
    budget_bytes: int
    tokens: int


class CoreMemory(Value, frozen=True):
    """The memory and disk of a core; without a loaded model, only the process."""

    process_bytes: int  # resident memory of the process and of its children
    weights_bytes: int = 0
    workspaces: int = 0
    workspaces_bytes: int = 0  # of all workspaces
    tiers: tuple[TierMemory, ...] = ()


class CoreStatus(Value, frozen=True):
    """The core's status; sent on connection and on every change."""

    state: CoreState
    model: str
    device: str = ""
    detail: str = ""  # for users: the current step of loading, or the reason of a failure
    progress: float | None = None  # 0..1 while loading
    context_tokens: int = 0  # longest prompt plus completion; 0 until loaded
    chars_per_token: float = 0.0  # of source code, by this tokenizer; 0 until loaded


CacheOutcome = Literal["hit", "partial", "miss"]

# Tokens that a cache hit may recompute beyond the inserted ones: typing retokenizes the token before the cursor,
# and a backspace the two before it.
SLACK_TOKENS = 3
# Of source code with the vocabularies of current code models; used without a measurement.
_CHARS_PER_TOKEN = 3.2


def cache_outcome(usage: Usage, inserted_tokens: int) -> CacheOutcome:
    """The cache outcome of a request after an edit that inserted `inserted_tokens` (0 for a deletion or a move).

    An engine that keeps whole blocks recomputes the rest of the last one with every request.
    """
    if usage.recomputed_tokens < inserted_tokens + SLACK_TOKENS + usage.block_tokens:
        return "hit"
    return "miss" if usage.recomputed_tokens >= usage.prompt_tokens else "partial"


def estimate_tokens(chars: int, chars_per_token: float = 0.0) -> int:
    """Estimated number of tokens of a text, without a tokenizer; `chars_per_token` is the core's, 0 if unknown."""
    return math.ceil(chars / (chars_per_token or _CHARS_PER_TOKEN))


def megabytes(count: float) -> str:
    """A number of bytes as readable text."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
