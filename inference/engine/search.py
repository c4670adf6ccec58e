"""The search for other texts than the most probable one, and for the text that fits best between prefix and suffix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from inference.backends.model import Choice
from inference.engine.writer import Steps, Text, Writer
from inference.text.token_ids import TokenIds, common_prefix_length, packed
from protocol.messages import FinishReason

TRIES = 2
"""Texts to decode at most for each one that is wanted: some turn out to be the same text in other tokens."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Another beginning: the first tokens of a text, `kept`, then `choice`."""

    kept: tuple[Choice, ...]
    choice: Choice
    logprob: float  # of all these tokens but those that spell typed bytes


def branches(chosen: Sequence[Choice], typed: bytes, text: str, bytes_of: Callable[[int], bytes | None]) -> list[Branch]:
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


COMPARED = 8
"""Tokens of the suffix: they tell apart nearly as much as more of them."""

COMPARED_CHARS = 64


def text_and_suffix(token_ids: TokenIds, text: bytes, suffix: str, bytes_of: Callable[[int], bytes | None]) -> tuple[int, str]:
    """The number of leading tokens that lie in `text`, and what follows them: the rest of it and of the suffix.

    A stop may have cut the text within a token.
    """
    kept, size = 0, 0
    for token_id in token_ids:
        longer = size + len(bytes_of(token_id) or b"")
        if longer > len(text):
            break
        kept, size = kept + 1, longer
    return kept, text[size:].decode("utf-8", "replace") + suffix[:COMPARED_CHARS]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A text at its end."""

    growing: Text
    text: str
    reason: FinishReason
    token_ids: TokenIds  # of it and the typed bytes, but for a token that reaches beyond it
    fit: float  # between prefix and suffix, if texts are ranked by that; comparable for one prompt only


class Search:
    """The search for the texts of one request, behind its prompt."""

    def __init__(self, writer: Writer, context_tokens: int) -> None:
        self._writer = writer
        self._context_tokens = context_tokens
        spec = writer.request.spec
        self.others = max(spec.alternatives, spec.best_of - 1)
        """The number of texts to write besides the most probable one."""

    @property
    def top(self) -> int:
        """The number of the most probable tokens that a text must note in each place, for others to leave it there."""
        return 1 + self.others if self.others else 0

    def end(self, choices: Sequence[Choice], growing: Text) -> Steps[SearchResult]:
        """Decode to the text's end, and find out how well it fits, if texts are ranked by that."""
        text, reason = yield from self._writer.decode(choices, growing)
        bytes_of, suffix = self._writer.tokenizer.bytes_of, self._writer.request.spec.prompt.suffix
        kept, rest = text_and_suffix(growing.token_ids, self._writer.prompt.typed + text.encode(), suffix, bytes_of)
        token_ids = growing.token_ids[:kept]
        fit = (yield from self._fit(growing, token_ids, rest)) if self._writer.ranks else 0.0
        return SearchResult(growing, text, reason, token_ids, fit)

    def other_texts(self, suggestion: SearchResult) -> Steps[list[SearchResult]]:
        """The wanted number of other texts: each leaves an earlier one at a token, and is greedy from there.

        The most probable beginning goes first, so that their order is that of a best-first search.
        """
        found: dict[str, SearchResult] = {}
        left = self._branches(suggestion)
        for _ in range(TRIES * self.others):
            if len(found) == self.others or not left:
                break
            branch = max(left, key=lambda each: each.logprob)
            left.remove(branch)
            other = yield from self._other_text(branch)
            if other.text not in ("", suggestion.text, *found):
                found[other.text] = other
                left += self._branches(other)
        return list(found.values())

    def make_resident(self, generated: TokenIds) -> Steps[None]:
        """Compute what is missing of the prompt and `generated`."""
        writer, resident = self._writer, self._writer.resident
        self._crop(generated)
        while missing := writer.missing(generated):
            token_ids = missing[: writer.chunk_tokens()]
            yield resident.chunk(token_ids)
            resident.extend(token_ids, is_prompt=False)
            writer.request.cost.forwards += 1

    def _crop(self, generated: TokenIds) -> None:
        """Crop the workspace to the tokens that it has of the prompt and of `generated`."""
        resident, length = self._writer.resident, len(self._writer.prompt.token_ids)
        resident.crop(length + common_prefix_length(resident.token_ids[length:], generated))

    def _fit(self, growing: Text, token_ids: TokenIds, rest: str) -> Steps[float]:
        """The logarithm of the probability of `token_ids` behind the prompt, and of what follows in the document.

        This compares texts by prefix and suffix alike, even if the model pays little attention to the suffix while it
        writes: p(suffix | text) decides among texts whose p(text) is similar.
        """
        writer, resident = self._writer, self._writer.resident
        before = writer.prompt.token_ids + token_ids
        expected = writer.tokenizer.encode(rest)[: min(COMPARED, self._context_tokens - len(before))]
        typed = len(growing.token_ids) - len(growing.logprobs)
        logprob = sum(growing.logprobs[: max(0, len(token_ids) - typed)])
        if not expected:
            return logprob
        # The last token is computed again, and what an earlier text has overwritten of a text that ended at once.
        resident.crop(min(len(before) - 1, common_prefix_length(resident.token_ids, before)))
        missing = writer.missing(token_ids)
        choices = yield replace(resident.chunk(missing + expected[:-1], len(expected)), forced=expected)
        resident.extend(missing, is_prompt=writer.request.spec.reuse and not token_ids)
        writer.request.cost.forwards += 1
        return logprob + sum(choice.logprob for choice in choices)

    def _other_text(self, branch: Branch) -> Steps[SearchResult]:
        """The text that begins so."""
        growing = self._writer.text(top=self.top)
        for choice in branch.kept:
            self._writer.take(choice, growing, is_generated=False)
            growing.chosen.append(Choice(choice.token_id, choice.logprob))  # nothing leaves it where it was another's
        self._crop(packed(choice.token_id for choice in (*branch.kept, branch.choice)))
        return (yield from self.end((branch.choice,), growing))

    def _branches(self, found: SearchResult) -> list[Branch]:
        bytes_of = self._writer.tokenizer.bytes_of
        return branches(found.growing.chosen, self._writer.prompt.typed, found.text, bytes_of)
