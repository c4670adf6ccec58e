from tests.bench.conftest import Figures


def test_clicks_without_an_edit_prepare_nothing_by_default(model: str, figures: Figures) -> None:
    found = figures("clicks.py", "--model", model, "--clicks", "2", "--lines", "400", "--seconds", "0.5")
    assert found["editing"]["prepared"] == found["never"]["prepared"] == 0
    assert found["editing, after an edit"]["prepared"] > 0
    assert found["always"]["prepared"] > 0
