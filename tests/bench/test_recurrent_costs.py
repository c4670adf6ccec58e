from __future__ import annotations

from tests.bench.conftest import Figures


def test_keys_that_change_a_token_again_or_delete_are_nearly_as_hot_as_with_attention_alone(figures: Figures) -> None:
    """Among these edits are words that are typed on, several times the same one, and deletions after moves."""
    recurrent, attention = figures("recurrent_costs.py", "--start", "90", "--limit", "40").values()
    assert attention["hit_share"] == 1
    assert recurrent["hit_share"] >= 0.95
    assert recurrent["recomputed_tokens"]["mean"] <= 1.5 * attention["recomputed_tokens"]["mean"]
