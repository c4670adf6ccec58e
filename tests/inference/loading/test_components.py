from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.loading.tiers import TierBudgets, open_store
from kv_store.interface import SessionKey
from kv_store.main_memory import KVShape
from kv_store.store import PagedStore
from kv_store.workspace import KVWorkspace, StateLayout
from protocol.errors import BadInput
from protocol.messages import CompletionRequest, Prompt
from tests.inference.simulated_cuda import SimulatedCuda
from tests.inference.tiny import write_checkpoint

REQUEST = CompletionRequest("a.py", Prompt("def f():\n", "\n", "    x"), 4)


def test_torchs_compiler_is_not_imported_which_takes_as_long_as_torch() -> None:
    program = "import sys, inference.loading.components; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture
def options(tiny_checkpoint: Path) -> EngineOptions:
    return EngineOptions(str(tiny_checkpoint), device="cpu", threads=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "fp8"}, "fp8 weights need a CUDA GPU, and the model runs on cpu"),
        ({"weights": "int8", "kernel": False}, "int8 weights need the CPU kernel: the kernel is switched off"),
        ({"weights": "int4", "dtype": "float16"}, r"int4 weights need the CPU kernel: the kernel does not support float16"),
    ],
)
def test_impossible_weights_are_named(options: EngineOptions, changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_engine(replace(options, **changes))  # type: ignore[arg-type]


def test_the_kernel_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_checkpoint(tmp_path, hidden_size=64, num_attention_heads=2, num_key_value_heads=1)
    options = EngineOptions(str(folder), device="cpu", threads=1)

    def load_kernel_model(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("inference.loading.kernel.load_kernel_model", load_kernel_model)
    assert load_engine(replace(options, kernel=False)).complete(REQUEST).usage.forwards >= 1
    with pytest.raises(AssertionError):
        load_engine(options)


def test_rounded_weights_keep_their_kv_apart(options: EngineOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("inference.loading.placement.weights_problem", lambda *_: "")  # torchao's fp8 runs on a CPU
    whole = replace(options, cache_folder=tmp_path / "kv", dtype="bfloat16", kernel=False)
    recomputed = []
    for loaded in (whole, replace(whole, weights="fp8"), replace(whole, weights="fp8")):
        reports: list[str] = []
        engine = load_engine(loaded, lambda what, _, reports=reports: reports.append(what))  # type: ignore[misc]
        recomputed.append(engine.complete(REQUEST).usage.recomputed_tokens)
        engine.close()
        assert ("quantizing the weights" in reports) == (loaded.weights == "fp8")
    assert recomputed[0] == recomputed[1] > 1
    assert recomputed[2] == 1


SHAPE = KVShape(num_layers=1, num_kv_heads=1, head_dim=4, dtype="float32")
IDS = range(40)


def opened(root: Path, disk_bytes: int = 2**20) -> PagedStore:
    store, prepare = open_store(TierBudgets(2**20, 2**20, root, disk_bytes), SHAPE, torch.device("cpu"), "model")
    assert not prepare()  # a CPU has no idle work
    return store


def names(store: PagedStore) -> list[str]:
    return [tier.name for tier in store.stats().tiers]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes in folders")
@pytest.mark.parametrize(
    "block",
    [Path.touch, os.mkfifo, lambda root: root.symlink_to(root.name), lambda root: root.symlink_to("/proc/1/nothing")],
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
    assert store.insert_prefix(IDS, KVWorkspace(SHAPE, 64), SessionKey("", "a")) == len(IDS)
    assert store.save()
    store.close()


def test_a_failure_after_the_folder_was_opened_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("kv_store.persistence.remove_other_models", fail)
        assert names(opened(tmp_path)) == ["device"]
    assert "Input/output error" in caplog.text
    assert names(opened(tmp_path)) == ["device", "disk"]


def test_without_a_budget_nothing_is_kept_on_disk(tmp_path: Path) -> None:
    assert names(opened(tmp_path, 0)) == ["device"]
    assert not list(tmp_path.iterdir())


def test_a_second_process_goes_on_without_a_disk_tier(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = opened(tmp_path)
    assert names(opened(tmp_path)) == ["device"]
    assert "another process keeps its pages here" in caplog.text
    first.close()
    assert names(opened(tmp_path)) == ["device", "disk"]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_snapshots_have_the_same_share_of_every_tier(device: str, tmp_path: Path) -> None:
    budgets = TierBudgets(3 * 2**20, 2**22, tmp_path, 2**24, snapshots_bytes=2**20)
    state = (torch.zeros(4), None)
    with SimulatedCuda():
        store, _ = open_store(budgets, SHAPE, torch.device(device), "model", StateLayout.of(state))
        found = {tier.name: tier.budget_bytes for tier in store.stats().tiers}
        host = {"host": 3 * 2**20} if device != "cpu" else {}
        of_host = {"snapshots on the host": 2**20} if device != "cpu" else {}
        pages = {"device": 3 * 2**20, **host, "disk": 3 * 2**22}
        assert found == {**pages, "snapshots": 2**20, **of_host, "snapshots on disk": 2**22}
        store.close()
