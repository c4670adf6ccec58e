from tests.bench.conftest import Figures


def test_a_tiny_run_finds_what_was_saved(model: str, figures: Figures) -> None:
    found = figures("restart.py", "--model", model, "--rounds", "1")
    assert found["recomputed_tokens"] == {"warm": 1, "cold": found["prompt_tokens"]}
