from __future__ import annotations

from tests.bench.conftest import Figures


def test_keys_that_change_a_token_again_or_delete_hit_the_cache_nearly_as_with_attention_alone(figures: Figures) -> None:
    """Among these edits are words that are typed on, several times the same one, and deletions after moves."""
    recurrent, attention, at_blocks = figures("recurrent_costs.py", "--start", "90", "--limit", "40").values()
    assert attention["hit_share"] == 1
    assert recurrent["hit_share"] >= 0.95
    assert recurrent["recomputed_tokens"]["mean"] <= 1.5 * attention["recomputed_tokens"]["mean"]
    assert at_blocks["recomputed_tokens"]["mean"] > 50 * recurrent["recomputed_tokens"]["mean"]
