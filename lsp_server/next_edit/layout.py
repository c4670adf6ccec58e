"""Decides what of a laid prompt stays: anchors are laid anew at rest, and otherwise kept while their region holds."""

from __future__ import annotations

from collections.abc import Sequence

from lsp_server.next_edit.formats import NextEditFormat
from lsp_server.next_edit.history import History
from lsp_server.next_edit.regions import RegionAnchor
from protocol.messages import Snippet


def next_anchor(
    layout: NextEditFormat,
    path: str,
    lines: Sequence[str],
    row: int,
    history: History,
    snippets: Sequence[Snippet],
    previous: RegionAnchor | None,
    *,
    at_rest: bool,
) -> RegionAnchor:
    """The anchor for the cursor's line; `previous` has followed all edits since it was laid.

    Between two rests the events stay those of the last one, so that each key changes the prompt only from its place
    in the region on; what was typed since then is missing from the history, and the region shows it. A region that
    does not hold is laid anew with them, or with all events where a new region changes the whole prompt anyway.

    Raises BadInput, naming the marker, if the document holds one of the format's markers.
    """
    if previous is None or previous.path != path or at_rest:
        return layout.anchor(path, lines, row, history.events, snippets, previous, history.newest)
    if layout.keeps(previous, lines, row):
        return previous
    if layout.suffix_first:
        return layout.anchor(path, lines, row, history.events, snippets, previous, history.newest)
    return layout.anchor(path, lines, row, previous.events, previous.snippets, previous, history.newest)
