"""Splits the text before a cursor into an EFIM prefix and increment, for clients that send no increment."""

from __future__ import annotations

LINES_BACK = 8
MAX_INCREMENT_CHARS = 1024


def split_prefix(text: str) -> tuple[str, str]:
    """The prefix, which ends at a line start some lines above the end of `text`, and the increment after it.

    The increment has between LINES_BACK and twice as many lines before its last one, and begins at a multiple of
    LINES_BACK: so it grows at its end, while the prefix stays the same for some lines. If it would exceed
    MAX_INCREMENT_CHARS it has fewer lines, and begins within a line only if that line alone exceeds the limit.
    """
    lines = text.splitlines(keepends=True)
    if not text or text.endswith(("\n", "\r")):
        lines.append("")
    start = max(0, (len(lines) - 1 - LINES_BACK) // LINES_BACK * LINES_BACK)
    chars = sum(map(len, lines[start:]))
    while chars > MAX_INCREMENT_CHARS and start < len(lines) - 1:
        chars -= len(lines[start])
        start += 1
    if chars > MAX_INCREMENT_CHARS:
        step = MAX_INCREMENT_CHARS // 2
        chars = chars % step + step
    return text[: len(text) - chars], text[len(text) - chars :]
