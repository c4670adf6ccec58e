"""The values that cross between the language server and the inference core."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

PROTOCOL_VERSION = 2
MAX_ALTERNATIVES = 16  # nobody looks through more, and each takes the model's time

ANONYMOUS = "anonymous"
"""The session of requests that name none: unrelated prompts, which the core keeps apart by their text."""

FinishReason = Literal["eos", "stop", "length", "cancelled"]
CoreState = Literal["unloaded", "loading", "ready", "failed", "stopped"]  # stopped: by request, it exits now


class Value(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all of them are: immutable, and in JSON an object of their fields, without those that say nothing new."""


class ContextChunk(Value, frozen=True):
    """A piece of another open file that stands before the prefix."""

    path: str
    text: str


class Prompt(Value, frozen=True):
    """The text of an EFIM prompt: `<PRE> prefix <SUF> suffix <MID> increment` (arXiv 2505.21889, section 4).

    Each field is a fragment, tokenized on its own. With `order="spm"` the suffix stands first; PSM is EFIM
    with an empty increment.
    """

    prefix: str
    suffix: str
    increment: str = ""
    context: tuple[ContextChunk, ...] = ()
    order: Literal["psm", "spm"] = "psm"


class StopRule(Value, frozen=True):
    """Where a suggestion ends, besides the model's own end.

    `indent` is None for a single line: it ends before the first newline. Otherwise the suggestion is a
    block: it ends before the first non-blank line that is indented by less than `indent` columns (a tab
    counts up to the next multiple of 4; the rest of the cursor's own line does not count as a line). With `closes`
    the closing brackets that this line begins with belong to the block.
    """

    indent: int | None = None
    closes: bool = False


class CompletionRequest(Value, frozen=True):
    """Ask for a suggestion, or with `max_tokens=0` only to make the prompt resident ahead of need.

    `session` names the document, as `client/document`: the newest request of a session supersedes the older ones.
    `reuse=False` computes everything cold (the strategy `none`, and checks of exactness). Of `alternatives` at most
    so many come back besides the suggestion itself, and never more than MAX_ALTERNATIVES.
    """

    session: str
    prompt: Prompt
    max_tokens: int
    stop: StopRule = StopRule()
    reuse: bool = True
    alternatives: int = 0


class Usage(Value, frozen=True):
    """What a request cost, in tokens, forwards and milliseconds."""

    prompt_tokens: int
    recomputed_tokens: int  # prompt tokens pushed through the model
    generated_tokens: int
    forwards: int
    queue_ms: float
    prefill_ms: float
    decode_ms: float
    drafted_tokens: int = 0  # guessed at, and verified in a forward
    accepted_tokens: int = 0  # of them right: so many forwards were saved
    prepare_ms: float = 0.0  # tokenizing, and finding what is resident; prefill follows


class Completion(Value, frozen=True):
    """The answer to a `CompletionRequest`."""

    text: str
    finish_reason: FinishReason
    usage: Usage
    mean_logprob: float | None = None  # of the tokens generated for `text`; None when there are none
    alternatives: tuple[str, ...] = ()  # each begins with another token, the more probable first


class CoreStatus(Value, frozen=True):
    """What the core is doing; sent on connection and on every change."""

    state: CoreState
    model: str
    device: str = ""
    detail: str = ""  # for people: what is being loaded, or why it failed
    progress: float | None = None  # 0..1 while loading
    context_tokens: int = 0  # longest prompt plus suggestion; 0 until loaded
    chars_per_token: float = 0.0  # of source code, by this tokenizer; 0 until loaded
