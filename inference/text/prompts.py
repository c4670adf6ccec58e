"""EFIM prompts as token ids: lays a prompt out, fits it into the context, and shows which spans of it were
resident.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import Literal

from msgspec import structs

from inference.text.healing import HealedIncrement, Healer
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import MarkerIds, TextTokenizer
from protocol.errors import BadInput
from protocol.messages import Prompt

STEPS_PER_CONTEXT = 8  # excess of the windows is dropped in eighths of the context
NEW_TOKENS_SHARE = 16  # least share for new tokens, a sixteenth of the context
SUFFIX_STEPS = 2  # a suffix longer than this many steps is cut before the prefix
RETOKENIZED = 4  # tokens at the end of a fragment that may change if its text goes on; hardly ever more


MAX_CHARS_PER_TOKEN = 8
"""Text beyond this many characters per token of the context is cut before tokenization."""

SHORT_PREFIX_TOKENS = 150  # the increment adds the lines from the anchor to the cursor
SHORT_SUFFIX_TOKENS = 100

CountTokens = Callable[[str], int]

_LINES, _WORDS = re.compile(r"(?<=\n)"), re.compile(r"(?<=\W)")


def short_prompt(prompt: Prompt, count_tokens: CountTokens) -> Prompt:
    """The prompt of the text near the cursor, in whole lines, without snippets; a prompt of token ids stays as it is.

    It depends only on what stays while the user types on, and on the increment, so each key hits it too.
    """
    prefix = _nearest(prompt.prefix, SHORT_PREFIX_TOKENS, count_tokens, -1)
    suffix = _nearest(prompt.suffix, SHORT_SUFFIX_TOKENS, count_tokens, 1)
    return structs.replace(prompt, prefix=prefix, suffix=suffix, context=())


def _nearest(text: str, limit: int, count_tokens: CountTokens, step: Literal[1, -1]) -> str:
    """The first lines (step 1) or the last ones (-1) of at most `limit` tokens together; of a longer line, its words."""
    near = ""
    for starts in (_LINES, _WORDS):
        pieces = starts.split(text)[::step]
        totals = accumulate(map(count_tokens, pieces))
        near = "".join(pieces[: sum(1 for _ in takewhile(limit.__ge__, totals))][::step])
        if near.strip():
            break
    return near


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A prompt as the model receives it, with the number of tokens from each part (the rest are markers)."""

    token_ids: TokenIds
    context_tokens: int
    prefix_tokens: int
    suffix_tokens: int
    increment_tokens: int
    typed: bytes = b""  # end of the increment, left to token healing
    joints: tuple[int, ...] = ()  # positions where a later prompt may leave this one, before the increment

    def prefix_end(self, markers: MarkerIds) -> int:
        """The tokens up to the end of the prefix, which other suffixes may follow; 0 if the suffix is before it."""
        ids = self.token_ids
        if markers.prefix not in ids or markers.suffix not in ids:
            return 0
        end = ids.index(markers.suffix)
        return end if end > ids.index(markers.prefix) else 0


@dataclass(frozen=True, slots=True)
class _Fragments:
    """The complete parts of a prompt as tokens."""

    context: tuple[TokenIds, ...]
    prefix: TokenIds
    suffix: TokenIds
    increment: TokenIds

    @property
    def token_count(self) -> int:
        """Number of tokens except those of snippets."""
        return len(self.prefix) + len(self.suffix) + len(self.increment)


def tokenize_prompt(
    prompt: Prompt, tokenizer: TextTokenizer, context_tokens: int, max_tokens: int, healer: Healer | None = None
) -> TokenizedPrompt:
    """Lay out `prompt` for a model of `context_tokens`, with room for `max_tokens` more.

    A healer replaces the end of the increment by typed bytes that the first new tokens must spell, and reserves as many
    tokens.

    If it does not fit, whole snippets are dropped first, from the last one on, so that the most stable ones keep their
    place; then the end of the suffix and the beginning of the prefix, in steps of an eighth of the context. A sixteenth
    of the context always stays free, so that requests that differ only in `max_tokens` get the same layout. Raises
    BadInput if the increment and `max_tokens` alone do not fit. A prompt of token ids or with marker
    tokens is taken as it is.
    """
    if prompt.token_ids:
        return _given(prompt.token_ids, tokenizer.vocabulary_size, context_tokens - max_tokens)
    if prompt.marked:
        return _marked(prompt.marked, tokenizer, context_tokens, max_tokens)
    prompt = _cut(prompt, context_tokens * MAX_CHARS_PER_TOKEN)
    increment = healer.heal(prompt.increment) if healer else HealedIncrement(tokenizer.encode(prompt.increment), b"")
    fragments = _Fragments(
        context=tuple(_context_chunk(chunk.path, chunk.text, tokenizer) for chunk in prompt.context),
        prefix=tokenizer.encode(tokenizer.format.lead + prompt.prefix if prompt.prefix else ""),
        suffix=tokenizer.encode(prompt.suffix),
        increment=increment.token_ids,
    )
    step = context_tokens // STEPS_PER_CONTEXT
    markers = 2 + (tokenizer.markers.begin is not None) + (tokenizer.markers.middle is not None)
    room = context_tokens - max(max_tokens + len(increment.typed), context_tokens // NEW_TOKENS_SHARE) - markers
    if len(fragments.increment) > room:
        raise BadInput(
            f"an increment of {len(fragments.increment)} tokens, {len(increment.typed)} bytes of an unfinished word "
            f"and {max_tokens} new tokens do not fit into a context of {context_tokens}"
        )
    suffix_first = tokenizer.format.suffix_first or prompt.order == "spm"
    return _join(_fit(fragments, room, step), tokenizer.markers, suffix_first, increment.typed)


def _given(token_ids: tuple[int, ...], vocabulary_size: int, room: int) -> TokenizedPrompt:
    """The prompt that a client has tokenized itself; BadInput if it has unknown tokens or more than `room`."""
    if len(token_ids) > room:
        raise BadInput(f"a prompt of {len(token_ids)} tokens does not fit: beside the new tokens there is room for {room}")
    unknown = next((token_id for token_id in token_ids if not 0 <= token_id < vocabulary_size), None)
    if unknown is not None:
        raise BadInput(f"token {unknown} is not in the vocabulary of {vocabulary_size} tokens")
    return TokenizedPrompt(packed(token_ids), 0, len(token_ids), 0, 0)


def _marked(parts: tuple[str, ...], tokenizer: TextTokenizer, context_tokens: int, max_tokens: int) -> TokenizedPrompt:
    """The prompt of texts and marker tokens in turn; BadInput if it is too long, or the tokenizer lacks a marker."""
    if sum(map(len, parts)) > context_tokens * MAX_CHARS_PER_TOKEN:
        raise BadInput(f"a prompt of {sum(map(len, parts))} characters does not fit into a context of {context_tokens}")
    token_ids = packed()
    for place, part in enumerate(parts):
        if place % 2 == 0:
            token_ids.extend(tokenizer.encode(part))
        elif (marker := tokenizer.marker_id(part)) is not None:
            token_ids.append(marker)
        else:
            raise BadInput(f"the model's tokenizer has no token {part!r}, which the prompt needs")
    return _given(tuple(token_ids), tokenizer.vocabulary_size, context_tokens - max_tokens)


def _cut(prompt: Prompt, limit: int) -> Prompt:
    """The prompt with at most `limit` characters per part, cut as `_fit` cuts; BadInput if the increment is longer.

    The prefix is cut from its beginning in steps, so that its start stays the same while its end grows.
    """
    if len(prompt.increment) > limit:
        raise BadInput(f"an increment of {len(prompt.increment)} characters does not fit into the context")
    lengths = list(accumulate(len(chunk.path) + len(chunk.text) + 1 for chunk in prompt.context))
    if max(len(prompt.prefix), len(prompt.suffix), *lengths[-1:]) <= limit:
        return prompt
    from_prefix = _whole_steps(len(prompt.prefix) - limit, limit // STEPS_PER_CONTEXT, len(prompt.prefix))
    chunks = prompt.context[: sum(length <= limit for length in lengths)]
    return structs.replace(prompt, prefix=prompt.prefix[from_prefix:], suffix=prompt.suffix[:limit], context=chunks)


def _context_chunk(path: str, text: str, tokenizer: TextTokenizer) -> TokenIds:
    ended = text if text.endswith("\n") or not text else text + "\n"
    if tokenizer.markers.file_separator is None:
        return tokenizer.encode(ended)
    return packed((tokenizer.markers.file_separator,)) + tokenizer.encode(f"{path}\n{ended}")


def _fit(fragments: _Fragments, room: int, step: int) -> _Fragments:
    """Drop tokens beyond `room`: snippets, then a long suffix, then the prefix, then the suffix.

    Snippets come first in the prompt, so dropping one recomputes everything after it. So that single tokens of the
    increment drop none, snippets stay only if the increment can grow up to the next step beside them.
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
    """The leading snippets that fit."""
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
    parts = (_marker(markers.begin), context, *windows, _marker(markers.middle))
    ends = tuple(accumulate(map(len, parts)))
    return TokenizedPrompt(
        token_ids=_joined((*parts, fragments.increment)),
        context_tokens=len(context),
        prefix_tokens=len(fragments.prefix),
        suffix_tokens=len(fragments.suffix),
        increment_tokens=len(fragments.increment),
        typed=typed,
        joints=(ends[1], ends[5 if suffix_first else 3] - RETOKENIZED, ends[-1]),
    )


def _marker(token_id: int | None) -> TokenIds:
    return packed(() if token_id is None else (token_id,))


def _joined(parts: Iterable[TokenIds]) -> TokenIds:
    joined = packed()
    for part in parts:
        joined.extend(part)
    return joined
