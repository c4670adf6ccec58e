"""Finds where other texts leave a completion: at the tokens in whose place the model nearly chose another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inference.backends.model import Choice

TRIES = 2
"""Texts to decode at most for each one that is wanted: some turn out to be the same text in other tokens."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Another beginning: the first tokens of a text, `kept`, then `choice`."""

    kept: tuple[Choice, ...]
    choice: Choice
    logprob: float  # of all these tokens but those that spell typed bytes


def branches(
    chosen: Sequence[Choice], typed: bytes, text: str, bytes_of: Callable[[int], bytes | None]
) -> list[Branch]:
    """The other beginnings that `chosen` shows.

    A text can branch at its end too, and go on. It does not branch within typed bytes, where other tokens would spell
    the same text.

    Args:
        chosen: a text's tokens, each with the most probable ones in its place, where other texts may leave it: first
            those that spell typed bytes, last the one that ended the text, if there was one.
        typed: the bytes that the first tokens must spell; not part of `text`.
        text: perhaps cut by a stop.
        bytes_of: what a token spells; None if it is no text.
    """
    found: list[Branch] = []
    size, behind, logprob = len(text.encode()), 0, 0.0  # in bytes; `behind` are before the token
    for place, choice in enumerate(chosen):
        spelled = bytes_of(choice.token_id)
        if typed and spelled is not None and len(spelled) <= len(typed):
            typed = typed[len(spelled) :]
            continue
        if behind > size:
            break
        kept = tuple(chosen[:place])
        found += [
            Branch(kept, Choice(token_id, other), logprob + other)
            for token_id, other in choice.top
            if token_id != choice.token_id and _adds_text(bytes_of(token_id), typed, is_first=behind == 0)
        ]
        logprob += choice.logprob
        behind += len(spelled or b"") - len(typed)
        typed = b""
    return found


def _adds_text(spelled: bytes | None, typed: bytes, *, is_first: bool) -> bool:
    """Whether a token spells more than typed bytes, or ends a text that has some."""
    if spelled is None:
        return not is_first
    return spelled.startswith(typed) and len(spelled) > len(typed)
