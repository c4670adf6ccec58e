"""Ctrl-C and SIGTERM during a training: the step is finished and saved."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stops_on_signals(*, again: bool) -> Iterator[Callable[[], bool]]:
    """A function that tells whether a signal to stop has come; where `again`, a second Ctrl-C stops at once.

    Among several processes it must not: each hears of one Ctrl-C from the terminal and from its launcher.
    """
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        if received and again and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
