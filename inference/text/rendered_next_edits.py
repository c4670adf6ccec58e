"""Prompts of next-edit models that a client has rendered: recognised by their markers, and computed as they are.

Sources: github.com/zed-industries/zed, crates/zeta_prompt (V0211SeedCoder, V0318SeedMultiRegions) and sweep_prompt.rs;
PyPI sweep-autocomplete 0.1.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SUFFIX, _PREFIX, _MIDDLE = "<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>"
_CURRENT, _SEPARATOR, _UPDATED = "<<<<<<< CURRENT\n", "=======\n", ">>>>>>> UPDATED"
_FIRST_TAG, _LAST_TAG = "<|marker_1|>", re.compile(r"<\|marker_\d+\|>\s*\Z")
_FILE = "<|file_sep|>"
_CURSOR = re.compile(r"<\|(?:user_)?cursor\|>")


@dataclass(frozen=True, slots=True)
class RenderedNextEdit:
    """A rendered prompt: `parts` are texts and marker tokens in turn, a text first.

    The answer ends before the `stop_texts` at the latest; without an edit it repeats `copies`.
    """

    parts: tuple[str, ...]
    copies: str
    stop_texts: tuple[str, ...] = ()


def read_next_edit(text: str) -> RenderedNextEdit | None:
    """The prompt of Zeta 2, Zeta 2.1 or Sweep that the text is; None if it is none."""
    return _read_zeta(text) if text.startswith(_SUFFIX) else _read_sweep(text) if text.startswith(_FILE) else None


def _read_zeta(text: str) -> RenderedNextEdit | None:
    suffix, _, rest = text[len(_SUFFIX) :].partition(_PREFIX)
    head, found, given = rest.rpartition(_MIDDLE)
    if not found:
        return None
    parts = ("", _SUFFIX, suffix, _PREFIX, head, _MIDDLE, given)
    region_at = head.rfind(_CURRENT)
    if region_at >= 0 and head.endswith(_SEPARATOR):
        region = head[region_at + len(_CURRENT) : -len(_SEPARATOR)]
        return RenderedNextEdit(parts, _rest_of(region + _UPDATED, given), (_UPDATED,))
    blocks_at = head.rfind(_FIRST_TAG)
    if blocks_at >= 0 and _LAST_TAG.search(head, blocks_at):
        return RenderedNextEdit(parts, _rest_of(head[blocks_at:].rstrip("\n"), given))
    return None


def _read_sweep(text: str) -> RenderedNextEdit | None:
    before, *sections = text.split(_FILE)
    last_three = [section.partition("\n") for section in sections[-3:]]
    if [path.partition("/")[0] for path, _, _ in last_three] != ["original", "current", "updated"]:
        return None
    _, (_, _, window), (_, _, given) = last_three
    parts = (before, *(part for section in sections for part in (_FILE, section)))
    return RenderedNextEdit(parts, _rest_of(window, given))


def _rest_of(region: str, given: str) -> str:
    """The region without the cursor, behind the part of the answer that the prompt gives."""
    shown = _CURSOR.sub("", region)
    return shown[len(given) :] if shown.startswith(given) else ""
