"""Files of cases: a document with a cursor, what the model writes there, and the document to be had."""

from __future__ import annotations

from pathlib import Path

import msgspec

from midfill_lab.evaluation.fidelity.places import Place
from protocol.errors import BadInput

_CURSOR = "║"
_FIELDS = ("name", "language", "model", "expected")


def read_cases(file: Path) -> list[Place]:
    """The cases of a file; BadInput, naming the case, if one is malformed.

    A case has the lines `name:`, `language:`, `model:` and `expected:` (both JSON strings), a line `---`, and the
    document with `║` at the cursor; `%%%` stands between cases. Lines in front that begin with `#` are comments.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read as a file of cases: {error}") from error
    return [_case(f"{file.name}, case {number}", part) for number, part in enumerate(text.split("%%%\n"), 1)]


def _case(where: str, part: str) -> Place:
    header, separator, document = part.partition("---\n")
    lines = [line for line in header.splitlines() if line.strip() and not line.startswith("#")]
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if not separator or tuple(fields) != _FIELDS:
        raise BadInput(
            f"{where}: wanted are the lines {', '.join(_FIELDS)} and ---, found {', '.join(fields) or 'none'}"
        )
    if document.count(_CURSOR) != 1:
        raise BadInput(f"{where}: the document has {document.count(_CURSOR)} cursors ({_CURSOR}), not one")
    try:
        model, expected = (msgspec.json.decode(fields[name], type=str) for name in ("model", "expected"))
    except msgspec.DecodeError as error:
        raise BadInput(f"{where}: model and expected are JSON strings: {error}") from error
    head, _, tail = document.partition(_CURSOR)
    return Place(f"{where} ({fields['name']})", fields["language"], "case", head, tail, model, expected)
