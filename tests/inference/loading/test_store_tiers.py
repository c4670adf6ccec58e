from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from inference.loading.store_tiers import TierBudgets, open_store
from kv_store.paged.store import PagedStore
from kv_store.workspace import KVShape, KVWorkspace

SHAPE = KVShape(num_layers=1, num_kv_heads=1, head_dim=4, dtype=torch.float32)
IDS = range(40)


def opened(root: Path) -> PagedStore:
    store, prepare = open_store(TierBudgets(2**20, 2**20, root, 2**20), SHAPE, torch.device("cpu"), "model")
    assert not prepare()  # a CPU has no idle work
    return store


def names(store: PagedStore) -> list[str]:
    return [tier.name for tier in store.stats().tiers]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes in folders")
@pytest.mark.parametrize(
    "block",
    [
        Path.touch,
        os.mkfifo,
        lambda root: root.symlink_to(root.name),
        lambda root: root.symlink_to("/proc/1/nothing"),
    ],
    ids=["a file", "a pipe", "a loop of links", "a link to nowhere"],
)
def test_where_there_can_be_no_folder_the_store_goes_on_without(
    block: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "kv"
    block(root)
    store = opened(root)
    assert names(store) == ["device"]
    (record,) = caplog.records
    assert "the store keeps nothing on disk" in record.message
    assert str(root) in record.message
    assert store.insert_prefix(IDS, KVWorkspace(SHAPE, 64), "a") == len(IDS)
    assert store.save()
    store.close()


def test_a_failure_after_the_folder_was_opened_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("kv_store.paged.persistence.remove_other_models", fail)
        assert names(opened(tmp_path)) == ["device"]
    assert "Input/output error" in caplog.text
    assert names(opened(tmp_path)) == ["device", "disk"]


def test_a_second_process_goes_on_without_a_disk_tier(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = opened(tmp_path)
    assert names(opened(tmp_path)) == ["device"]
    assert "another process keeps its pages here" in caplog.text
    first.close()
    assert names(opened(tmp_path)) == ["device", "disk"]
