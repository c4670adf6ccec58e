"""Verdicts: looked at in a thread, remembered for a while, renewed before they are needed."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from lsp_server.exclusion.verdict import Verdict
from lsp_server.exclusion.verdicts import Verdicts
from tests.lsp_server.editor import PATIENCE_S

KEEP_S = 2.0
RULE = Verdict("a rule", "midfillignore")
IGNORED = Verdict("a rule", "gitignore")


class Rules:
    """Excludes what it is told to, and notes what it is asked, and in which thread."""

    def __init__(self) -> None:
        self.excluded: set[str] = set()
        self.ignored: set[str] = set()
        self.asked: list[str] = []
        self.threads: set[int] = set()
        self.held = threading.Event()
        self.held.set()

    def verdict(self, uri: str) -> Verdict | None:
        self.asked.append(uri)
        self.threads.add(threading.get_ident())
        self.held.wait(10)
        return RULE if uri in self.excluded else IGNORED if uri in self.ignored else None


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(time=100.0)


@pytest.fixture
def verdicts(rules: Rules, clock: SimpleNamespace) -> Verdicts:
    return Verdicts(rules, lambda: clock.time, KEEP_S)


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


async def test_keys_do_not_look_at_the_disk(verdicts: Verdicts, rules: Rules, clock: SimpleNamespace) -> None:
    await verdicts.look(["a"], ["b"])
    for _ in range(100):
        clock.time += KEEP_S / 300
        await verdicts.look(["a"], ["c"])
        verdicts.renew(["a"], ["c"])
    assert rules.asked == ["a", "b"]


async def test_a_change_is_noticed_after_a_while(verdicts: Verdicts, rules: Rules, clock: SimpleNamespace) -> None:
    await verdicts.look(["a", "b"])
    assert verdicts.take_excluded() == {}
    rules.excluded = {"a", "b"}
    clock.time += KEEP_S
    await verdicts.look(["a"], ["b"])
    assert verdicts.take_excluded() == {"a": RULE, "b": RULE}
    assert verdicts.take_excluded() == {}
    clock.time += KEEP_S
    await verdicts.look(["a"])
    assert verdicts.take_excluded() == {}  # as before
    assert verdicts.own("a") == RULE


async def test_an_ignored_file_stays_out_of_others_prompts_until_the_user_wants_it_out_of_its_own(
    verdicts: Verdicts, rules: Rules
) -> None:
    rules.ignored, rules.excluded = {"a"}, {"b"}
    await verdicts.look(["a", "b"])
    assert [verdicts.is_excluded(uri) for uri in "ab"] == [True, True]
    assert [verdicts.own(uri) for uri in "ab"] == [None, RULE]
    assert verdicts.take_excluded() == {"a": IGNORED, "b": RULE}
    verdicts.use(ignored_are_off=True)
    assert verdicts.own("a") == IGNORED
    assert verdicts.take_excluded() == {"a": IGNORED}  # from more prompts than before


async def test_a_file_that_the_user_allows_enters_its_own_prompts_and_no_others(
    verdicts: Verdicts, rules: Rules
) -> None:
    rules.excluded = {"a"}
    await verdicts.look(["a"])
    verdicts.take_excluded()
    verdicts.allow("a")
    assert verdicts.is_excluded("a")
    assert (verdicts.own("a"), verdicts.take_excluded()) == (None, {})
    verdicts.allow("a", allowed=False)
    assert (verdicts.own("a"), verdicts.take_excluded()) == (RULE, {"a": RULE})


async def test_what_is_renewed_in_time_is_not_waited_for(
    verdicts: Verdicts, rules: Rules, clock: SimpleNamespace
) -> None:
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
    def fail(uri: str) -> Verdict | None:
        raise RuntimeError(uri)

    rules.verdict = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a"):
        await verdicts.look(["a"])
    assert verdicts.is_excluded("a")
