"""The formats of next-edit models by name, and the one of a model by its name."""

from __future__ import annotations

import re

from lsp_server.next_edit.formats import NextEditFormat
from lsp_server.next_edit.sweep import SWEEP_A, SWEEP_B
from lsp_server.next_edit.zeta import ZETA_2, ZETA_2_1
from protocol.errors import BadInput

_RECORDS: tuple[NextEditFormat, ...] = (ZETA_2, ZETA_2_1, SWEEP_A, SWEEP_B)
FORMATS = {record.name: record for record in _RECORDS}


def format_of_model(model: str) -> NextEditFormat:
    """The format of a model's family, by the model's name; BadInput if it is none that midfill knows."""
    name = model.lower()
    if "zeta" in name:
        return ZETA_2_1 if re.search(r"zeta-?2[.-]1", name) else ZETA_2
    if "sweep" in name:
        return SWEEP_A
    raise BadInput(f"{model} is no next-edit model that midfill knows: choose a format, {', '.join(FORMATS)}")


def format_named(name: str) -> NextEditFormat:
    """The format of that name; BadInput if there is none."""
    if name not in FORMATS:
        raise BadInput(f"unknown next-edit format {name!r}: choose {', '.join(FORMATS)}")
    return FORMATS[name]
