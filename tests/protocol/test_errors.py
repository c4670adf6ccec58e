"""Errors keep their class over the wire."""

from __future__ import annotations

import pytest

from protocol.errors import BadModel, CoreUnavailable, MidfillError, Unauthorized, error_from_code


@pytest.mark.parametrize("kind", [BadModel, CoreUnavailable, Unauthorized, MidfillError])
def test_a_code_gives_its_class(kind: type[MidfillError]) -> None:
    error = error_from_code(kind.code, "why")
    assert type(error) is kind
    assert str(error) == "why"


def test_an_unknown_code_gives_a_plain_error() -> None:
    assert type(error_from_code("from_the_future", "why")) is MidfillError
