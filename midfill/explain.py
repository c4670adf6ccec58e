"""Where each part of a prompt comes from, for `midfill complete --explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from protocol.messages import Value

if TYPE_CHECKING:
    from lsp_server.prompts.planner import Plan

_ORIGINS = {
    "definitions": "a definition of a symbol near the cursor",
    "usages": "a use of a symbol near the cursor",
    "similar": "code like that at the cursor",
    "visits": "a place that you visited",
    "edits": "your edit of a moment ago",
}
_PARTS = {
    "prefix": "text above the anchor",
    "suffix": "text behind the cursor",
    "increment": "text from the anchor to the cursor",
}
_COLOURS = {
    "definitions": "green",
    "usages": "bright_green",
    "similar": "cyan",
    "visits": "blue",
    "edits": "magenta",
    "prefix": "yellow",
    "suffix": "yellow",
    "increment": "red",
}
_SHOWN_LINES = 30  # of a window, in the terminal: its ends are what matters


class PromptPart(Value, frozen=True):
    """A part of a prompt in its order; a snippet has the path of its file and the source that proposed it."""

    part: Literal["snippet", "prefix", "suffix", "increment"]
    text: str
    origin: str = ""
    path: str = ""


def parts_of(plan: Plan) -> tuple[PromptPart, ...]:
    """The parts of a planned prompt in the order of its layout; empty ones are left out."""
    return tuple(part for part in _parts(plan) if part.text)


def _parts(plan: Plan) -> Iterator[PromptPart]:
    prompt = plan.prompt
    for snippet, origin in zip(prompt.context, plan.origins, strict=True):
        yield PromptPart("snippet", snippet.text, origin, snippet.path)
    windows = PromptPart("prefix", prompt.prefix), PromptPart("suffix", prompt.suffix)
    yield from reversed(windows) if prompt.order == "spm" else windows
    yield PromptPart("increment", prompt.increment)


def explanation(parts: tuple[PromptPart, ...]) -> RenderableType:
    """The parts for the terminal, each in a frame that names its origin; long windows are shortened in the middle."""
    return Group(*map(_panel, parts))


def _panel(part: PromptPart) -> Panel:
    if part.part == "snippet":
        title, kind = f"{part.path}: {_ORIGINS[part.origin]} ({part.origin})", part.origin
    else:
        title, kind = f"{part.part}: {_PARTS[part.part]}", part.part
    lines = part.text.split("\n")
    if len(lines) > _SHOWN_LINES:
        half = _SHOWN_LINES // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} more lines ...", *lines[-half:]]
    return Panel(
        Text("\n".join(lines)),
        title=Text(title),
        title_align="left",
        subtitle=f"{len(part.text)} characters",
        subtitle_align="right",
        border_style=_COLOURS[kind],
    )
