"""One user's floods of every kind of message beside another user's typing, on a core with users."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest

from inference.core.users import add_token
from protocol.messages import CompletionRequest, Prompt
from protocol.wire import Cancel, ClientMessage, Complete, Describe, Forget, Free, Release, Stop, Unload, encode
from tests.faults.attacked import Core, Flood, assert_answered_beside, attacked_core, prompts, typist

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Shared:
    core: Core
    token: str  # the flooding user's


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    token = add_token(folder / "users.json", "bob")
    with attacked_core(folder, "--users", str(folder / "users.json"), "--disk-mb", "64") as core:
        typist(core, 10)
        yield Shared(core, token)


def each(message: Callable[[int], ClientMessage]) -> Iterator[str]:
    return (encode(message(number)) for number in range(20_000))


def garbage() -> Iterator[str | bytes]:
    rng = random.Random(1)
    return ("x" * 200 if number % 2 else rng.randbytes(200) for number in range(20_000))


FLOODS: dict[str, Callable[[], Iterable[str | bytes]]] = {
    "Forget": lambda: each(lambda number: Forget(f"f/{number}")),
    "Release": lambda: each(lambda number: Release(f"f/{number}")),
    "Describe": lambda: each(Describe),
    "Cancel": lambda: each(Cancel),
    "Free, Unload and Stop": lambda: each(lambda number: (Free(number), Unload(), Stop("stop"))[number % 3]),
    "garbage": garbage,
    "prompts of one session": lambda: each(lambda number: Complete(number, CompletionRequest("f", Prompt("x", ""), 16))),
    "prompts of 10 MB": lambda: prompts(2, 10**7, 1),
    "prompts of 3,000 tokens": lambda: prompts(1000, 9000, 16),
    "prefetches": lambda: prompts(1000, 9000, 0),
    "sixteen alternatives of 500 tokens": lambda: prompts(1000, 500, 500, alternatives=16),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_at_most_doubles_what_others_wait(shared: Shared, name: str) -> None:
    flood = Flood.of_messages(shared.core, shared.token, FLOODS[name]())
    assert_answered_beside(shared.core, [flood], f"a flood of {name}")


def test_a_flood_of_http_requests_at_most_doubles_what_others_wait(shared: Shared) -> None:
    asked = f"GET /v1/models HTTP/1.1\r\nHost: {shared.core.address}\r\nAuthorization: Bearer {shared.token}\r\n\r\n"
    floods = [Flood(shared.core, 1000 * asked.encode()) for _ in range(8)]
    assert_answered_beside(shared.core, floods, "a flood of HTTP requests")
