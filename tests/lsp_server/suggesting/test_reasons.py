"""The words of the reasons."""

from lsp_server.suggesting.reasons import how_unlikely


def test_a_probability_just_below_the_limit_is_not_rounded_to_it() -> None:
    assert "is 19 %, below the setting holdBackPercent (20)" in how_unlikely(19.7, 20)
