"""Values are taken as they are: no number for a text, no text for a number, nothing rounded."""

from __future__ import annotations

import cattrs


def refuse_conversions(converter: cattrs.Converter) -> None:
    """Make `converter` take a value only where it has the type already; a whole number may stand for a float."""
    for kind in (int, bool, str, float):
        converter.register_structure_hook(kind, _exactly)


def _exactly(value: object, kind: type) -> object:
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(f"{value!r:.100} is not of type {kind.__name__}")
