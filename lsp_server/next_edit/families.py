"""The formats of next-edit models by name, and the one of a model by its name."""

from __future__ import annotations

from lsp_server.next_edit.formats import NextEditFormat
from lsp_server.next_edit.sweep import SWEEP_A, SWEEP_B
from lsp_server.next_edit.zeta import ZETA_2, ZETA_2_1
from protocol.errors import BadInput

_RECORDS: tuple[NextEditFormat, ...] = (ZETA_2, ZETA_2_1, SWEEP_A, SWEEP_B)
FORMATS = {record.name: record for record in _RECORDS}


def format_named(name: str) -> NextEditFormat:
    """The format of that name; BadInput if there is none."""
    if name not in FORMATS:
        raise BadInput(f"unknown next-edit format {name!r}: choose {', '.join(FORMATS)}")
    return FORMATS[name]
