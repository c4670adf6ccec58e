"""Spells a tokenized prompt again, in stretches that are of one part, and resident or computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Literal

from inference.text.healing import Healer
from inference.text.prompts import TokenizedPrompt, tokenize_prompt
from inference.text.tokenization import TextTokenizer
from protocol.messages import CompletionRequest, Usage

Part = Literal["snippets", "prefix", "suffix", "increment"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive tokens of a prompt as text, without markers; `tokens` is 0 for a partial word left to healing."""

    part: Part
    resident: bool
    text: str
    tokens: int


def stretches_of(
    request: CompletionRequest, usage: Usage, tokenizer: TextTokenizer, context_tokens: int, healer: Healer | None
) -> tuple[Stretch, ...]:
    """The stretches of a completed request's prompt.

    `usage` counts recomputed typed bytes (token healing) with the others; their tokens are estimated.
    """
    max_tokens = min(request.max_tokens, context_tokens // 2)
    prompt = tokenize_prompt(request.prompt, tokenizer, context_tokens, max_tokens, healer)
    typed_tokens = len(tokenizer.encode_once(prompt.typed.decode(errors="replace"))) if prompt.typed else 0
    known = max(0, usage.prompt_tokens - len(prompt.token_ids))  # of these, from earlier keys: behind all that is shown
    computed = max(usage.recomputed_tokens - max(typed_tokens, known), 0 if known else min(1, max_tokens))
    return stretches(prompt, len(prompt.token_ids) - computed, tokenizer)


def stretches(prompt: TokenizedPrompt, resident: int, tokenizer: TextTokenizer) -> tuple[Stretch, ...]:
    """The prompt's stretches in its order; its first `resident` tokens were not computed."""
    found = []
    for (part, is_resident), group in groupby(_placed(prompt, resident, tokenizer), key=itemgetter(0)):
        spelled = [token_bytes for _, token_bytes in group]
        found.append(Stretch(part, is_resident, b"".join(spelled).decode(errors="replace"), len(spelled)))
    if prompt.typed:
        found.append(Stretch("increment", False, prompt.typed.decode(errors="replace"), 0))
    return tuple(found)


def _placed(
    prompt: TokenizedPrompt, resident: int, tokenizer: TextTokenizer
) -> Iterator[tuple[tuple[Part, bool], bytes]]:
    """The bytes of each text token, with its part and whether it was resident."""
    markers = tokenizer.markers
    begins: dict[int | None, Part] = {markers.prefix: "prefix", markers.suffix: "suffix", markers.middle: "increment"}
    part: Part = "snippets"
    increment_at = len(prompt.token_ids) - prompt.increment_tokens
    for index, token_id in enumerate(prompt.token_ids):
        part = begins.get(token_id, part)
        token_bytes = tokenizer.bytes_of(token_id)
        if token_bytes is not None:
            yield ("increment" if index >= increment_at else part, index < resident), token_bytes
