"""Verdicts: looked at in a thread, remembered for a while, renewed before they are needed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lsp_server.exclusion.verdicts import Verdicts
from tests.lsp_server.editor import PATIENCE_S

KEEP_S = 2.0


class Rules:
    """Excludes what it is told to, and notes what it is asked, and in which thread."""

    def __init__(self) -> None:
        self.excluded: set[str] = set()
        self.asked: list[str] = []
        self.threads: set[int] = set()
        self.held = threading.Event()
        self.held.set()

    def reason(self, uri: str) -> str | None:
        self.asked.append(uri)
        self.threads.add(threading.get_ident())
        self.held.wait(10)
        return "a rule" if uri in self.excluded else None


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verdicts(rules: Rules, clock: Clock) -> Verdicts:
    return Verdicts(rules, clock, KEEP_S)


async def test_what_was_not_looked_at_is_excluded(verdicts: Verdicts) -> None:
    assert verdicts.is_excluded("a")
    await verdicts.look(["a"])
    assert not verdicts.is_excluded("a")


async def test_the_event_loop_goes_on_while_a_slow_disk_is_looked_at(verdicts: Verdicts, rules: Rules) -> None:
    rules.held.clear()
    looks = [asyncio.create_task(verdicts.look(["a", "b"])) for _ in range(3)]
    while not rules.asked:
        await asyncio.sleep(0.001)
    looks[0].cancel()  # as a newer request does with an older one
    rules.held.set()
    await asyncio.gather(*looks, return_exceptions=True)
    assert rules.asked == ["a", "b"]  # by one look for all
    assert threading.get_ident() not in rules.threads


async def test_keys_do_not_look_at_the_disk(verdicts: Verdicts, rules: Rules, clock: Clock) -> None:
    await verdicts.look(["a"], ["b"])
    for _ in range(100):
        clock.time += KEEP_S / 300
        await verdicts.look(["a"], ["c"])
        verdicts.renew(["a"], ["c"])
    assert rules.asked == ["a", "b"]


async def test_a_change_is_noticed_after_a_while(verdicts: Verdicts, rules: Rules, clock: Clock) -> None:
    await verdicts.look(["a", "b"])
    assert verdicts.take_excluded() == {}
    rules.excluded = {"a", "b"}
    clock.time += KEEP_S
    await verdicts.look(["a"], ["b"])
    assert verdicts.take_excluded() == {"a": "a rule", "b": "a rule"}
    assert verdicts.take_excluded() == {}
    clock.time += KEEP_S
    await verdicts.look(["a"])
    assert verdicts.take_excluded() == {}  # as before
    assert verdicts.reason("a") == "a rule"


async def test_what_is_renewed_in_time_is_not_waited_for(verdicts: Verdicts, rules: Rules, clock: Clock) -> None:
    await verdicts.look(["a"])
    rules.excluded = {"a"}
    clock.time += KEEP_S / 2
    verdicts.renew(["a"])
    while not verdicts.is_excluded("a"):
        await asyncio.sleep(0.001)
    clock.time += KEEP_S - 0.1
    rules.held.clear()
    await asyncio.wait_for(verdicts.look(["a"]), PATIENCE_S)


async def test_an_error_of_the_rules_reaches_those_that_wait(verdicts: Verdicts, rules: Rules) -> None:
    def fail(uri: str) -> str | None:
        raise RuntimeError(uri)

    rules.reason = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a"):
        await verdicts.look(["a"])
    assert verdicts.is_excluded("a")
