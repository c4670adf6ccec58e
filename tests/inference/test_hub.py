from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from inference.checkpoint import find_checkpoint
from inference.hub import fetch_snapshot, is_hub_name
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
    assert fetch_snapshot("someone/tiny") == snapshot
    assert find_checkpoint("someone/tiny").name == "someone/tiny"


def test_model_that_is_neither_cached_nor_reachable(cache: Path) -> None:
    with pytest.raises(BadModel, match="someone/tiny is not in the local cache and could not be fetched"):
        fetch_snapshot("someone/tiny")
