from __future__ import annotations

import pytest

from inference.core.queue import TokenBudgets
from protocol.errors import Busy


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_is_a_minutes_tokens_and_refills() -> None:
    clock = Clock()
    budgets = TokenBudgets(600, clock)
    for _ in range(2):
        budgets.check("ann")
        budgets.spend("ann", 299)
    budgets.check("ann")
    budgets.spend("ann", 301)  # 299 tokens of debt
    with pytest.raises(Busy, match="600 tokens a minute") as refused:
        budgets.check("ann")
    assert refused.value.retry_after_s == 30
    budgets.check("bob")
    clock.now += 29
    with pytest.raises(Busy):
        budgets.check("ann")
    clock.now += 1.01
    budgets.check("ann")


def test_full_budgets_are_forgotten_and_no_limit_counts_nothing() -> None:
    clock = Clock()
    budgets, unlimited = TokenBudgets(600, clock), TokenBudgets(None, clock)
    for number in range(1000):
        budgets.spend(f"ws-{number}", 10)
        unlimited.spend("ann", 10**9)
        clock.now += 1
    assert len(budgets._full_at) <= 1
    unlimited.check("ann")
