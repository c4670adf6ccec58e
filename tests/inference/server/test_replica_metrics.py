from __future__ import annotations

from inference.engine.interface import ReplicaStatus
from inference.server.metrics import Metrics
from inference.server.replica_metrics import ReplicaMetrics
from tests.inference.server.test_metrics import samples

REPLICAS = (
    ReplicaStatus("openai at http://a", "up", "", 7, 2, requests=30, hot_requests=29, moved_requests=0),
    ReplicaStatus("openai at http://b", "down", "no answer", 1, 0, requests=5, hot_requests=4, moved_requests=3),
)


def test_every_replica_has_its_state_and_counts() -> None:
    replicas = list(REPLICAS)
    metrics = Metrics()
    metrics.registry.register(ReplicaMetrics(lambda: replicas))
    found = samples(metrics.render(connections=0, model_loaded=True, residency=None))
    rows = {
        "midfill_replica_up": (1, 0),
        "midfill_replica_sessions": (7, 1),
        "midfill_replica_requests_at_work": (2, 0),
        "midfill_replica_suggestions_total": (30, 5),
        "midfill_replica_hot_suggestions_total": (29, 4),
        "midfill_replica_moved_requests_total": (0, 3),
    }
    for name, values in rows.items():
        assert tuple(found[f"{name} {replica.address}"] for replica in REPLICAS) == values
    replicas.clear()  # the local engine, or one that is not loaded
    assert not any("replica" in name for name in samples(metrics.render(0, model_loaded=False, residency=None)))
