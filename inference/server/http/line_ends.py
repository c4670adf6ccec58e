"""Converts line ends between clients and the model, which is trained on \\n alone."""

from __future__ import annotations

from msgspec.structs import replace

from protocol.messages import Completion, TokenLogprob


def line_end_of(before: str, after: str = "") -> str:
    """The line end of the text around a cursor: that of the cursor's line, else the last one before it, else \\n."""
    for text, place in ((after, after.find("\n")), (before, before.rfind("\n"))):
        if place >= 0:
            return "\r\n" if text[max(0, place - 1)] == "\r" else "\n"
    return "\n"


def inward(text: str) -> str:
    """A client's text with \\n for \\r\\n."""
    return text.replace("\r\n", "\n") if "\r" in text else text


def outward(text: str, line_end: str) -> str:
    """The model's text with the client's line ends; what a text begins with, its conversion begins with too."""
    return text if line_end == "\n" else inward(text).replace("\n", line_end)


def completed(completion: Completion, line_end: str) -> Completion:
    """The completion with the client's line ends in its text, its tokens and its alternatives."""
    if line_end == "\n":
        return completion
    return replace(
        completion,
        text=outward(completion.text, line_end),
        tokens=tuple(_token(token, line_end) for token in completion.tokens),
        alternatives=tuple(replace(other, text=outward(other.text, line_end)) for other in completion.alternatives),
    )


def _token(token: TokenLogprob, line_end: str) -> TokenLogprob:
    top = tuple((outward(text, line_end), logprob) for text, logprob in token.top)
    return replace(token, text=outward(token.text, line_end), top=top)
