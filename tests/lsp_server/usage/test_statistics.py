"""The counts, and the figures that follow from them."""

from __future__ import annotations

from lsp_server.usage.statistics import LATENCY_CLASSES_MS, Statistics, one_answer, total


def test_adding() -> None:
    summed = total([Statistics(shown=2, accepted=1), Statistics(shown=3), one_answer(3.0)])
    assert (summed.shown, summed.accepted, sum(summed.answers)) == (5, 1, 1)
    assert Statistics.of(dict(summed.counts) | {"glimpsed": 1}) == summed


def test_latency_is_that_of_the_class() -> None:
    summed = total(one_answer(ms) for ms in [0.5] * 8 + [30.0, 9000.0])
    assert [summed.latency_ms(share) for share in (0.5, 0.9, 1.0)] == [1, 30, None]
    assert Statistics().latency_ms(0.5) is None
    assert len(one_answer(1.0).answers) == len(LATENCY_CLASSES_MS) + 1


def test_shares() -> None:
    figures = Statistics(
        shown=10,
        accepted=3,
        accepted_partly=1,
        accepted_characters=30,
        typed_characters=90,
        watched_30s=20,
        kept_30s=15,
        watched_10min=10,
        kept_10min=5,
        hot=3,
        warm=1,
    )
    shares = (figures.acceptance_share, figures.kept_share_30s, figures.kept_share_10min)
    assert shares == (0.4, 0.75, 0.5)
    assert (figures.written_share, figures.hot_share) == (0.25, 0.75)
    empty = Statistics()
    assert {empty.acceptance_share, empty.kept_share_30s, empty.written_share, empty.hot_share} == {None}
