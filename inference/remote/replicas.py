"""The replicas of a model: which of them serve, which one a session belongs to, and what each one has done."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Sequence

from inference.engine.interface import ReplicaState, ReplicaStatus
from inference.remote.servers.address import EngineAddress
from inference.remote.servers.interface import ModelServer, ServerFacts
from inference.remote.slots import Places
from protocol.errors import EngineUnavailable
from protocol.heat import heat
from protocol.messages import Usage

log = logging.getLogger(__name__)


class Replica:
    """One server. The loop's thread lets it join and leave; the model thread uses its places and counts."""

    def __init__(self, address: EngineAddress, server: ModelServer) -> None:
        self.address = address
        self.server = server
        self.state: ReplicaState = "down"
        self.reason = f"{address} has not answered yet"
        self.places = Places(None)
        self.at_work = 0
        self._facts: ServerFacts | None = None
        self.moved_requests = 0  # that another replica had to answer
        self._requests = self._hot_requests = 0
        self._suspicion = asyncio.Event()

    @property
    def facts(self) -> ServerFacts:
        """What it reported when it joined last; it must have joined."""
        assert self._facts is not None, f"{self.address} has never joined"
        return self._facts

    @property
    def serves(self) -> bool:
        """Whether requests may be sent to it; a suspected replica gets those that no other one can take."""
        return self.state in ("up", "suspected")

    @property
    def has_room(self) -> bool:
        return self.at_work < self.facts.capacity

    @property
    def status(self) -> ReplicaStatus:
        """A snapshot; from any thread."""
        return ReplicaStatus(
            str(self.address),
            self.state,
            self.reason,
            self.places.sessions,
            self.at_work,
            self._requests,
            self._hot_requests,
            self.moved_requests,
        )

    def join(self, facts: ServerFacts) -> None:
        """Serve from now on. Sessions keep their slots, in which nothing is expected to be resident."""
        if self._facts is not None and self._facts.slots == facts.slots:
            self.places.expect_nothing()
        else:
            self.places = Places(facts.slots)
        self._facts = facts
        self._become("up")

    def leave(self, reason: str, *, refused: bool = False) -> None:
        """Serve no more; `refused` if the server answers, but with another model. The reason names the address."""
        self._become("refused" if refused else "down", reason)

    def suspect(self, reason: str) -> None:
        """Serve only where no other replica can, because a request failed, until it is checked."""
        self._become("suspected", reason)

    async def check_soon(self) -> None:
        """End the wait of `suspected_within`."""
        self._suspicion.set()

    async def suspected_within(self, seconds: float) -> None:
        """Return after so many seconds, or as soon as a check is wanted."""
        try:
            async with asyncio.timeout(seconds):
                await self._suspicion.wait()
        except TimeoutError:
            pass
        self._suspicion.clear()

    def count(self, usage: Usage) -> None:
        """Count an answered request for a suggestion, as if each had typed one token."""
        self._requests += 1
        self._hot_requests += heat(usage, inserted_tokens=1) == "hot"

    def _become(self, state: ReplicaState, reason: str = "") -> None:
        if (state, reason) != (self.state, self.reason):
            level = {"up": logging.INFO, "refused": logging.ERROR}.get(state, logging.WARNING)
            log.log(level, "replica %s: %s", state, reason or self.address)
        self.state, self.reason = state, reason


class Replicas:
    """The replicas in the order of the setting."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.all = tuple(replicas)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def serving(self) -> list[Replica]:
        return [replica for replica in self.all if replica.serves]

    @property
    def capacity(self) -> int:
        """Requests that can be at work at once; one if no replica serves, since a request asks them anew."""
        return max(1, sum(replica.facts.capacity for replica in self.serving))

    @property
    def are_gone(self) -> bool:
        """Whether all must be connected to anew. Only one of several can be suspected: its siblings are checked."""
        return not self.serving or (len(self) == 1 and self.all[0].state != "up")

    @property
    def notice(self) -> str:
        """The replicas that do not serve, and why; empty for a single one, whose requests tell."""
        reasons = [replica.reason for replica in self.all if replica.state != "up"]
        if len(self) == 1 or not reasons:
            return ""
        return f"{len(self) - len(reasons)} of {len(self)} replicas serve: {'; '.join(reasons)}"

    def choose(self, key: str, tried: Collection[Replica] = ()) -> Replica:
        """The replica for a session or another `key`, by rendezvous hashing among those that were not tried.

        Each key ranks all replicas by a hash, so that a death moves the sessions of the dead one alone, and evenly. A
        full replica is passed over. EngineUnavailable if none is left.
        """
        left = [replica for replica in self.serving if replica not in tried]
        if not left:
            reasons = "; ".join(filter(None, (replica.reason for replica in self.all)))
            raise EngineUnavailable(f"no replica can serve the request: {reasons}")
        return min(left, key=lambda one: (one.state != "up", not one.has_room, _rank(key, one.address)))

    async def aclose(self) -> None:
        for replica in self.all:
            await replica.server.aclose()


def _rank(key: str, address: EngineAddress) -> bytes:
    return hashlib.blake2b(f"{address.url} {key}".encode(), digest_size=8).digest()
