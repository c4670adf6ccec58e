"""The state and the counts of the replicas behind the engine, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inference.engine.interface import ReplicaStatus

_LABELS = ("replica",)


class ReplicaMetrics(Collector):
    """Reads the replicas at every scrape; exports nothing for the local engine."""

    def __init__(self, replicas: Callable[[], Sequence[ReplicaStatus]]) -> None:
        self._replicas = replicas

    def collect(self) -> Iterator[Metric]:
        """The metrics, each with a value per replica."""
        up = GaugeMetricFamily("midfill_replica_up", "Whether the replica serves requests.", labels=_LABELS)
        sessions = GaugeMetricFamily(
            "midfill_replica_sessions", "Sessions that have a place at the replica.", labels=_LABELS
        )
        at_work = GaugeMetricFamily("midfill_replica_requests_at_work", "Requests at the replica.", labels=_LABELS)
        answered = CounterMetricFamily(
            "midfill_replica_suggestions", "Requests for suggestions that the replica answered.", labels=_LABELS
        )
        hot = CounterMetricFamily(
            "midfill_replica_hot_suggestions",
            "Requests for suggestions that recomputed at most three tokens and a block of the replica's cache.",
            labels=_LABELS,
        )
        moved = CounterMetricFamily(
            "midfill_replica_moved_requests",
            "Requests that failed at the replica and were sent to another.",
            labels=_LABELS,
        )
        for replica in self._replicas():
            labels = (replica.address,)
            up.add_metric(labels, replica.state == "up")
            sessions.add_metric(labels, replica.sessions)
            at_work.add_metric(labels, replica.at_work)
            answered.add_metric(labels, replica.requests)
            hot.add_metric(labels, replica.hot_requests)
            moved.add_metric(labels, replica.moved_requests)
        yield from (up, sessions, at_work, answered, hot, moved)
