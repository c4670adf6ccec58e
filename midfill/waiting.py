"""Tells on stderr what a command waits for: by a line that a terminal redraws, elsewhere by a line for each thing."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.status import Status


class Waiting:
    """What is being waited for; use it as a context, whose end takes the redrawn line away."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._status: Status | None = None
        self._told: set[str] = set()

    def __enter__(self) -> Waiting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over()

    def on(self, what: str, share: float | None = None) -> None:
        """Wait for this from now on; `share` of it is done, 0..1."""
        if self._console.is_terminal:
            text = what if share is None else f"{what}, {share:.0%}"
            if self._status is None:
                self._status = self._console.status(text)
                self._status.start()
            self._status.update(text)
        elif what not in self._told:
            self._told.add(what)
            self.note(what)

    def over(self) -> None:
        """Wait for nothing more."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def note(self, message: str) -> None:
        """Print a line that stays."""
        self._console.print(f"midfill: {message}")
