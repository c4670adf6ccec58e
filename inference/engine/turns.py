"""Chooses the requests that share the next forward: short chunks always, long prompts in turns, by client."""

from __future__ import annotations

from inference.engine.request_run import Run

SMALL_CHUNK = 32
"""Chunks of up to this many tokens join every forward; longer ones take turns."""


class Turns:
    """The requests at work, in the order of turns of their long chunks.

    A forward takes at most one long chunk. The turn passes from client to client, and within a client from request to
    request. While short chunks of other clients are at work, a long chunk also waits until forwards without one have
    taken as long as the last forward with one: so the long prompts of one client at most double what the
    keystrokes of another take.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._long_chunk_shares = False  # the forward that `next` has chosen
        self._owed_s = 0.0  # forwards without a long chunk are to take so long before the next one with it

    def next(self) -> list[Run]:
        """The requests whose chunks go into the next forward; ahead work only if there is nothing else."""
        runs = [run for run in self.runs if not run.is_ahead_work] or self.runs
        short = [run for run in runs if not _is_long(run)]
        turn = next((run for run in runs if _is_long(run) and not self._has_to_wait(run, short)), None)
        self._long_chunk_shares = turn is not None
        if turn is None:
            return short
        self.runs = sorted(self.runs, key=lambda run: (run.client == turn.client, run is turn))
        return [run for run in runs if run is turn or run in short]

    def took(self, seconds: float) -> None:
        """Note how long the forward took that `next` has chosen the requests for."""
        self._owed_s = seconds if self._long_chunk_shares else max(0.0, self._owed_s - seconds)

    def take_ended(self) -> list[Run]:
        """Remove the requests that have ended, and return them."""
        ended = [run for run in self.runs if run.has_ended]
        self.runs = [run for run in self.runs if not run.has_ended]
        return ended

    def _has_to_wait(self, run: Run, short: list[Run]) -> bool:
        return self._owed_s > 0 and any(other.client != run.client for other in short)


def _is_long(run: Run) -> bool:
    return run.chunk is not None and len(run.chunk.token_ids) > SMALL_CHUNK
