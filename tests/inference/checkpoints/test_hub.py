from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from inference.checkpoints.checkpoint import find_checkpoint, find_local_checkpoint
from inference.checkpoints.hub import _bar_class, cached_snapshot, fetch_snapshot, is_hub_name
from protocol.errors import BadModel

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("model", "is_name"),
    [
        ("Qwen/Qwen2.5-Coder-1.5B", True),
        ("a/b", True),
        ("bundled", False),
        ("./a", False),
        ("../a", False),
        ("/a/b", False),
        ("a/b/c", False),
        ("a/..", False),
    ],
)
def test_hub_names(model: str, is_name: bool) -> None:
    assert is_hub_name(model) == is_name


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_cached_model_needs_no_network(cache: Path, tiny_checkpoint: Path) -> None:
    snapshot = cache / "models--someone--tiny" / "snapshots" / COMMIT
    shutil.copytree(tiny_checkpoint, snapshot)
    reference = cache / "models--someone--tiny" / "refs" / "main"
    reference.parent.mkdir()
    reference.write_text(COMMIT)
    assert cached_snapshot("someone/tiny") == snapshot
    assert find_checkpoint("someone/tiny").name == "someone/tiny"
    (snapshot / "model.safetensors").unlink()  # as an interrupted download leaves it
    with pytest.raises(BadModel, match="has no weights"):
        find_checkpoint("someone/tiny").weights()
    assert find_local_checkpoint("someone/tiny") is None


def test_model_that_is_neither_cached_nor_reachable(cache: Path) -> None:
    assert find_local_checkpoint("someone/tiny") is None
    with pytest.raises(BadModel, match="someone/tiny is not in the local cache and could not be fetched"):
        fetch_snapshot("someone/tiny")


def test_progress_is_told_in_bytes_whether_or_not_the_bar_is_drawn() -> None:
    told: list[tuple[str, float | None]] = []
    bars = _bar_class("someone/tiny", lambda what, share: told.append((what, share)))
    for bar in (bars(total=100, unit="B", disable=True), bars(total=4, unit="it", disable=True)):
        bar.update(1)
        bar.update(1)
        bar.close()
    assert told == [("fetching someone/tiny", 0.01), ("fetching someone/tiny", 0.02)]
