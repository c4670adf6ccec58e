"""Ctrl-C and SIGTERM during a training: the first finishes the step and saves, a second Ctrl-C ends at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType

ENDED = 130  # as a shell has it for what Ctrl-C ended
_SHOW_CURSOR = "\033[?25h"


@contextmanager
def stops_on_signals(*, again: bool, heard: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """A function that tells whether a signal to stop has arrived; another thread calls `heard` at the first.

    If `again`, a second Ctrl-C ends the process at once, even within a long computation; checkpoints stay whole. With
    several processes `again` must be False: each receives one Ctrl-C from the terminal and one from its launcher.
    """
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        received.append(number)

    # Python runs handlers between two steps of the interpreter, which may be minutes apart while torch computes. The
    # system's handler itself writes to the wake-up descriptor.
    inbox, wake_up = socket.socketpair()
    wake_up.setblocking(False)
    watcher = Thread(target=_watch, args=(inbox, again, heard), daemon=True)
    watcher.start()
    handlers = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    before = signal.set_wakeup_fd(wake_up.fileno(), warn_on_full_buffer=False)
    try:
        yield lambda: bool(received)
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        wake_up.close()
        watcher.join()
        inbox.close()


def _watch(inbox: socket.socket, again: bool, heard: Callable[[], None]) -> None:
    """Read signal numbers until the other end closes."""
    received = 0
    while numbers := inbox.recv(1):
        if numbers[0] not in (signal.SIGINT, signal.SIGTERM):
            continue
        received += 1
        if received == 1:
            heard()
        elif again and numbers[0] == signal.SIGINT:
            if sys.stdout.isatty():
                os.write(1, _SHOW_CURSOR.encode())
            os._exit(ENDED)
