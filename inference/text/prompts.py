"""The token ids of an EFIM prompt, fitted into the model's context so that its beginning stays put."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

from msgspec import structs

from inference.text.fim import FIMFormat
from inference.text.healing import HealedIncrement, Healer
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import MarkerIds
from protocol.errors import BadInput
from protocol.messages import Prompt

STEPS_PER_CONTEXT = 8  # what does not fit of the windows is dropped in eighths of the context
NEW_TOKENS_SHARE = 16  # a sixteenth of the context is kept for new tokens, and more where more are asked for
SUFFIX_STEPS = 2  # a suffix longer than so many steps gives way before the prefix does


MAX_CHARS_PER_TOKEN = 8
"""Text beyond so many characters per token of the context is cut before it is tokenized."""


class Encoder(Protocol):
    """What laying out a prompt needs of a tokenizer."""

    format: FIMFormat
    markers: MarkerIds

    def encode(self, fragment: str) -> TokenIds: ...


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A prompt as the model gets it, and how many of its tokens came from each part (the rest are markers)."""

    token_ids: TokenIds
    context_tokens: int
    prefix_tokens: int
    suffix_tokens: int
    increment_tokens: int
    typed: bytes = b""  # of the increment, left to token healing


@dataclass(frozen=True, slots=True)
class _Fragments:
    """The parts of a prompt in tokens, each complete."""

    context: tuple[TokenIds, ...]
    prefix: TokenIds
    suffix: TokenIds
    increment: TokenIds

    @property
    def token_count(self) -> int:
        """Of all but the context."""
        return len(self.prefix) + len(self.suffix) + len(self.increment)


def tokenize_prompt(
    prompt: Prompt, encoder: Encoder, context_tokens: int, max_tokens: int, healer: Healer | None = None
) -> TokenizedPrompt:
    """Lay out `prompt` for a model of `context_tokens`, leaving room for `max_tokens` more.

    A healer leaves the end of the increment out, as bytes that the first of the new tokens have to spell; there is room
    for as many tokens more.

    Where it does not fit, context chunks go first, whole and from the last one on, so that the most stable ones stay
    where they are; then the end of the suffix and the beginning of the prefix, in steps of an eighth of the
    context. A sixteenth of the context is always left, so that requests which differ only in `max_tokens` are laid out
    alike. BadInput if the increment and `max_tokens` alone do not fit.
    """
    prompt = _cut(prompt, context_tokens * MAX_CHARS_PER_TOKEN)
    increment = healer.heal(prompt.increment) if healer else HealedIncrement(encoder.encode(prompt.increment), b"")
    fragments = _Fragments(
        context=tuple(_context_chunk(chunk.path, chunk.text, encoder) for chunk in prompt.context),
        prefix=encoder.encode(encoder.format.lead + prompt.prefix if prompt.prefix else ""),
        suffix=encoder.encode(prompt.suffix),
        increment=increment.token_ids,
    )
    step = context_tokens // STEPS_PER_CONTEXT
    markers = 2 + (encoder.markers.begin is not None) + (encoder.markers.middle is not None)
    room = context_tokens - max(max_tokens + len(increment.typed), context_tokens // NEW_TOKENS_SHARE) - markers
    if len(fragments.increment) > room:
        raise BadInput(
            f"an increment of {len(fragments.increment)} tokens and {max_tokens} new ones do not fit "
            f"into a context of {context_tokens}"
        )
    suffix_first = encoder.format.suffix_first or prompt.order == "spm"
    return _join(_fit(fragments, room, step), encoder.markers, suffix_first, increment.typed)


def _cut(prompt: Prompt, limit: int) -> Prompt:
    """The prompt with at most `limit` characters of each part, cut where `_fit` would cut; BadInput for the increment.

    The prefix is cut in steps from its beginning, so that it begins at the same place while its end grows.
    """
    if len(prompt.increment) > limit:
        raise BadInput(f"an increment of {len(prompt.increment)} characters does not fit into the context")
    lengths = list(accumulate(len(chunk.text) for chunk in prompt.context))
    if max(len(prompt.prefix), len(prompt.suffix), *lengths[-1:]) <= limit:
        return prompt
    from_prefix = _whole_steps(len(prompt.prefix) - limit, limit // STEPS_PER_CONTEXT, len(prompt.prefix))
    chunks = prompt.context[: sum(length <= limit for length in lengths)]
    return structs.replace(prompt, prefix=prompt.prefix[from_prefix:], suffix=prompt.suffix[:limit], context=chunks)


def _context_chunk(path: str, text: str, encoder: Encoder) -> TokenIds:
    ended = text if text.endswith("\n") else text + "\n"
    if encoder.markers.file_separator is None:
        return encoder.encode(ended)
    return packed((encoder.markers.file_separator,)) + encoder.encode(f"{path}\n{ended}")


def _fit(fragments: _Fragments, room: int, step: int) -> _Fragments:
    """Drop what is over `room`: context, then a long suffix, then the prefix, then the suffix.

    Context stands before everything, and dropping it costs all that is behind. It is therefore not the increment's
    last token that pushes it out: it stays only where the increment can grow up to the next step beside it.
    """
    grown = max(1, -(-len(fragments.increment) // step)) * step
    room_for_context = room - len(fragments.prefix) - len(fragments.suffix) - grown
    if fragments.context:
        fragments = replace(fragments, context=tuple(_leading(fragments.context, room_for_context)))
    excess = fragments.token_count - room
    if excess <= 0:
        return fragments
    suffix = fragments.suffix
    from_suffix = _whole_steps(min(excess, len(suffix) - SUFFIX_STEPS * step), step, len(suffix))
    from_prefix = _whole_steps(excess - from_suffix, step, len(fragments.prefix))
    from_suffix = min(len(suffix), max(from_suffix, excess - from_prefix))
    return replace(fragments, prefix=fragments.prefix[from_prefix:], suffix=suffix[: len(suffix) - from_suffix])


def _leading(chunks: tuple[TokenIds, ...], room: int) -> Iterator[TokenIds]:
    """The first chunks, as many as fit."""
    for chunk in chunks:
        room -= len(chunk)
        if room < 0:
            return
        yield chunk


def _whole_steps(tokens: int, step: int, at_most: int) -> int:
    """`tokens` rounded up to whole steps, within [0, at_most]."""
    return min(at_most, -(-max(0, tokens) // step) * step)


def _join(fragments: _Fragments, markers: MarkerIds, suffix_first: bool, typed: bytes) -> TokenizedPrompt:
    context = _joined(fragments.context)
    prefix, suffix = (_marker(markers.prefix), fragments.prefix), (_marker(markers.suffix), fragments.suffix)
    windows = (*suffix, *prefix) if suffix_first else (*prefix, *suffix)
    return TokenizedPrompt(
        token_ids=_joined((_marker(markers.begin), context, *windows, _marker(markers.middle), fragments.increment)),
        context_tokens=len(context),
        prefix_tokens=len(fragments.prefix),
        suffix_tokens=len(fragments.suffix),
        increment_tokens=len(fragments.increment),
        typed=typed,
    )


def _marker(token_id: int | None) -> TokenIds:
    return packed(() if token_id is None else (token_id,))


def _joined(parts: Iterable[TokenIds]) -> TokenIds:
    joined = packed()
    for part in parts:
        joined.extend(part)
    return joined
