from tests.bench.conftest import Figures, needs_kernel


@needs_kernel
def test_a_tiny_run_finds_the_same_texts_with_fewer_forwards(model: str, figures: Figures) -> None:
    ways = {way["way"]: way for way in figures("identity.py", "--model", model, "--requests", "8")}
    assert {(way["texts"], way["differing"]) for way in ways.values()} == {(8, 0)}
    assert {ways[way]["logprob_distance"] for way in ways if way.startswith("kernel")} == {0.0}
    assert 0 < ways["torch"]["logprob_distance"] < 1e-4
    plain, speculation, batching, both = (
        ways[way] for way in ("kernel", "kernel, speculation", "kernel, batching", "kernel, both")
    )
    assert both["accepted_tokens"] > 0
    assert max(speculation["forwards"], batching["forwards"]) < plain["forwards"]
    assert both["forwards"] <= batching["forwards"]  # equal if drafts shorten only requests that end early anyway
