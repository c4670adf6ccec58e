from __future__ import annotations

import pytest

from inference.server.draining import Draining


@pytest.mark.parametrize(
    ("signals", "idle", "http_requests", "seconds", "is_over"),
    [
        (0, True, 0, 99, False),
        (1, True, 0, 0, True),
        (1, False, 0, 29, False),
        (1, True, 1, 29, False),  # a stream between two of its texts
        (1, False, 1, 30, True),
        (2, False, 1, 1, True),  # a second signal does not wait
    ],
)
def test_the_core_ends_when_its_requests_are_answered(
    signals: int, idle: bool, http_requests: int, seconds: int, is_over: bool
) -> None:
    clock = iter([0.0, float(seconds)])
    draining = Draining(lambda: idle, 30.0, lambda: next(clock))
    draining.http_requests = http_requests
    assert draining.is_over(signals) is is_over
    assert draining.has_begun is (signals > 0)
