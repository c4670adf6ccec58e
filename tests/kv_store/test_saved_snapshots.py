"""Snapshots on the way down: from a device to main memory, to files, and through a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor

from inference.engine.sessions import session_key as key
from kv_store.disk import PageFolder, SnapshotFiles
from kv_store.disk_folders import INDEX_NAME, PageIndex
from kv_store.interface import Workspace
from kv_store.main_memory import KVShape
from kv_store.page_snapshots import SAVED_APART, SnapshotTier
from kv_store.persistence import purge_saved
from kv_store.snapshots import Snapshots, StateSnapshot
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier
from kv_store.workspace import HostSnapshots, KVWorkspace, StateCodec, StateLayout, TensorCodec, TensorStorage
from tests.inference.simulated_cuda import SimulatedCuda
from tests.kv_store.integrity import check_integrity

SHAPE = KVShape(num_layers=1, num_kv_heads=1, head_dim=2, dtype="float32")
STATE_BYTES = 32 + 20
PROMPT = tuple(range(100, 240))
FAR, NEAR = 20, 20 + SAVED_APART
"""Places of which both are saved; SAVED_APART - 1 tokens behind one, no other is."""
Opened = Callable[..., PagedStore]


def state(position: int, device: torch.device | str = "cpu") -> StateSnapshot:
    """One that tells its position, with a layer that keeps nothing."""
    tensors = (torch.full((2, 4), position, device=device).float(), None, torch.full((5,), -position).float().to(device))
    return StateSnapshot(tensors, STATE_BYTES)


def workspace(*positions: int, device: torch.device | str = "cpu", of: Sequence[int] = ()) -> Workspace:
    kept = KVWorkspace(SHAPE, 256, device)
    kept.snapshots = Snapshots(2**20)
    kept.snapshots.note_prompt(1000, (1000,))
    for position in positions:
        kept.snapshots.put(position, state(position, device))
    kept.buffer[0, 0, 0, : len(of), 0] = torch.tensor(of, device=device).float()
    return kept


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    def open_store(memory: int = 100, disk: float = 100, fingerprint: str = "model") -> PagedStore:
        """Budgets in snapshots."""
        folder = PageFolder(tmp_path, fingerprint, TensorCodec(SHAPE), min_free_bytes=0)
        codec = StateCodec(StateLayout.of(state(1).state))  # type: ignore[arg-type]
        tiers = [Tier("device", 2**16, TensorStorage("cpu")), Tier("disk", 2**16, folder)]
        snapshots = [
            SnapshotTier("snapshots", memory * STATE_BYTES, MemoryStorage()),
            SnapshotTier("snapshots on disk", int(disk * (STATE_BYTES + codec.overhead)), SnapshotFiles(folder, codec)),
        ]
        return PagedStore(tiers, SHAPE.bytes_per_token, snapshots)

    return open_store


def insert(store: PagedStore, token_ids: Sequence[int], *positions: int, session: str = "client/a") -> None:
    store.insert_prefix(token_ids, workspace(*positions, of=token_ids), key(session))
    check_integrity(store)


def found(store: PagedStore, token_ids: Sequence[int] = PROMPT) -> int:
    """Where a forward goes on in an empty workspace that has loaded the match, whose KV and state are right."""
    check_integrity(store)
    empty = workspace()
    assert isinstance(empty, KVWorkspace)
    assert empty.snapshots is not None
    with store.match_prefix(token_ids) as match:
        where = empty.resumable(match.load(empty))
    assert empty.buffer[0, 0, 0, :where, 0].tolist() == list(token_ids[:where])
    if where:
        kept, expected = empty.snapshots[where].state, state(where).state
        assert isinstance(kept, tuple)
        assert isinstance(expected, tuple)
        assert all(one is other or torch.equal(one, other) for one, other in zip(kept, expected, strict=True))
    check_integrity(store)
    return where


def counts(store: PagedStore) -> list[int]:
    return [tier.pages for tier in store.stats().tiers[2:]]


def snapshot_files(root: Path) -> list[Path]:
    """In the order in which they were written."""
    (index,) = root.rglob(INDEX_NAME)
    with closing(sqlite3.connect(index)) as database:
        numbers = database.execute("SELECT number FROM snapshots ORDER BY number").fetchall()
    return [index.parent / f"{number:08x}.safetensors" for (number,) in numbers]


@pytest.fixture
def saved(opened: Opened) -> None:
    """A prompt with two snapshots on disk; a third is too near."""
    store = opened()
    insert(store, PROMPT, FAR, NEAR, NEAR + SAVED_APART - 1)
    assert store.save()
    assert counts(store) == [3, 2]
    store.close()


def test_a_prompt_goes_on_where_it_was_saved_after_a_restart(saved: None, opened: Opened, tmp_path: Path) -> None:
    store = opened()
    assert counts(store) == [0, 2], "nothing is read before it is matched"
    assert [found(store, PROMPT[:length]) for length in (FAR - 1, NEAR - 1, NEAR, 140)] == [0, FAR, NEAR, NEAR]
    assert counts(store) == [2, 2], "they moved up; their files stay"
    assert store.stats().refused == ()
    assert found(store, (*PROMPT[:30], 1, 2)) == FAR
    insert(store, PROMPT, NEAR + 64)
    assert store.save()
    assert counts(store) == [3, 3]
    store.close()
    store = opened()
    assert found(store) == NEAR + 64
    store.close()
    assert len(snapshot_files(tmp_path)) == 3


def test_a_longer_page_takes_over_the_files_too(opened: Opened) -> None:
    store = opened()
    insert(store, PROMPT[:70], 69)
    assert store.save()
    insert(store, PROMPT)
    assert store.save()
    store.close()
    store = opened()
    assert found(store) == 69
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"),
    ],
    ids=["missing", "truncated", "a flipped bit"],
)
def test_a_damaged_snapshot_is_named_and_the_one_before_it_is_used(
    damage: Callable[[Path], object], saved: None, opened: Opened, tmp_path: Path
) -> None:
    path = snapshot_files(tmp_path)[-1]
    damage(path)
    store = opened()
    assert found(store) == FAR
    (reason,) = store.stats().refused
    assert path.name in reason
    store.close()
    assert path not in snapshot_files(tmp_path)


def test_the_state_of_another_model_is_refused(saved: None, opened: Opened, tmp_path: Path) -> None:
    store = opened(fingerprint="another")
    assert (counts(store), found(store)) == ([0, 0], 0)
    store.close()
    with pytest.raises(ValueError, match="a state of another model"):
        StateCodec(StateLayout(())).decode(StateCodec(StateLayout(())).encode(state(3)))


def test_a_purged_document_leaves_no_state_on_disk(saved: None, opened: Opened, tmp_path: Path) -> None:
    gone, store = snapshot_files(tmp_path), opened()
    insert(store, (1, 2, 3), 3, session="client/b")
    assert store.save()
    store.purge("a")
    check_integrity(store)
    assert [path.exists() for path in gone] == [False, False]
    assert (counts(store), found(store), found(store, (1, 2, 3))) == ([1, 1], 0, 3)
    store.close()
    purge_saved(tmp_path, "b")
    assert snapshot_files(tmp_path) == list(tmp_path.rglob("*.safetensors")) == []


def test_the_disk_keeps_the_latest_within_its_budget_and_the_index_has_only_these(opened: Opened, tmp_path: Path) -> None:
    store = opened(memory=1, disk=2)
    for number in range(5):
        insert(store, [*range(number, number + 3)], 3, session=f"client/{number}")
        assert store.save()
    assert counts(store) == [1, 2]
    assert [found(store, [*range(number, number + 3)]) for number in range(5)] == [0, 0, 0, 3, 3]
    store.close()
    assert len(snapshot_files(tmp_path)) == 2
    store = opened(disk=0.5)  # a file is smaller than the most that it could be
    assert [found(store, [*range(number, number + 3)]) for number in range(5)] == [0, 0, 0, 0, 3]
    store.clear(disk=False)
    assert (counts(store), found(store, [4, 5, 6])) == ([0, 1], 3)
    store.clear(disk=True)
    assert (counts(store), found(store, [4, 5, 6])) == ([0, 0], 0)
    store.close()
    assert snapshot_files(tmp_path) == []


def test_what_time_was_left_for_is_saved_and_the_rest_follows(opened: Opened) -> None:
    store = opened()
    insert(store, PROMPT, FAR, NEAR)
    steps = [store.save(0.0)]
    while not steps[-1]:
        steps.append(store.save(0.0))
        check_integrity(store)
    assert len(steps) > 2
    assert counts(store) == [2, 2]
    store.close()


def test_a_purge_removes_a_snapshot_whose_page_has_left_the_disk(opened: Opened, tmp_path: Path) -> None:
    store = opened()
    insert(store, PROMPT[:10], 8)
    insert(store, (1, 2, 3), 3, session="client/b")
    assert store.save()
    insert(store, PROMPT[:14])  # a longer page supersedes the saved one, and is not saved
    store.close()
    state_file, left = snapshot_files(tmp_path)
    state_file.with_name("0000ffff.safetensors").write_bytes(b"killed before the index was written")
    purge_saved(tmp_path, "a")
    assert snapshot_files(tmp_path) == [left]
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2, "the page and the snapshot of the other document"


def test_each_snapshot_is_in_the_index_before_the_next_is_written(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, known = SnapshotFiles.put, []

    def count(files: SnapshotFiles, payload: object, tokens: int) -> object:
        known.append(len(files.folder.index.read_snapshots()))
        return put(files, payload, tokens)

    monkeypatch.setattr(SnapshotFiles, "put", count)
    store = opened()
    insert(store, PROMPT, FAR, NEAR)
    assert store.save()
    store.close()
    assert known == [0, 1]


def test_where_the_index_cannot_be_written_a_purge_removes_all_that_is_saved(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    insert(store, PROMPT, FAR)
    insert(store, (1, 2, 3), 3, session="client/b")
    assert store.save()
    with monkeypatch.context() as patched:
        patched.setattr(PageIndex, "write", full)
        store.purge("a")
    check_integrity(store)
    assert counts(store) == [1, 0]
    assert list(tmp_path.rglob("*.safetensors")) == []
    assert store.save()
    assert counts(store) == [1, 1], "what memory still has is saved again"
    store.close()


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("writer", [PageFolder, SnapshotFiles])
def test_what_a_full_disk_refuses_is_saved_later_and_what_it_has_stays(
    writer: type, opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(disk=1)
    insert(store, (1, 2, 3), 3, session="client/b")
    assert store.save()
    insert(store, PROMPT, FAR)
    with monkeypatch.context() as patched:
        patched.setattr(writer, "put", full)
        store.save()
        store.save()
    assert len(caplog.records) == 1
    assert counts(store) == [2, 1]
    assert store.save()
    store.close()
    store = opened(disk=1)
    assert (found(store), found(store, (1, 2, 3))) == (FAR, 0)
    store.close()


def test_a_step_without_snapshots_leaves_them_for_a_later_one(opened: Opened) -> None:
    store = opened()
    insert(store, PROMPT, FAR)
    assert store.save(snapshots=False)
    assert counts(store) == [1, 0]
    assert store.save()
    assert counts(store) == [1, 1]
    store.close()


@pytest.fixture
def cuda() -> Iterator[SimulatedCuda]:
    with SimulatedCuda() as simulated:
        yield simulated


def test_what_leaves_a_device_goes_to_main_memory_and_comes_back(cuda: SimulatedCuda) -> None:
    device = torch.device("cuda", 0)
    layout = StateLayout.of(state(1, device).state)  # type: ignore[arg-type]
    snapshots = [
        SnapshotTier("snapshots", STATE_BYTES, MemoryStorage()),
        SnapshotTier("snapshots on the host", 2 * STATE_BYTES, HostSnapshots(layout)),
    ]
    store = PagedStore([Tier("device", 2**16, TensorStorage(device))], SHAPE.bytes_per_token, snapshots)
    for number in range(4):
        store.insert_prefix([number, 1, 2], workspace(3, device=device), key(f"client/{number}"))
    check_integrity(store)
    assert [tier.pages for tier in store.stats().tiers[1:]] == [1, 2], "the least recently used has left"
    for number, where in ((0, 0), (1, 3), (2, 3), (3, 3)):
        empty = workspace(device=device)
        assert empty.snapshots is not None
        with store.match_prefix([number, 1, 2]) as match:
            assert match.load(empty) == where
        check_integrity(store)
        if where:
            first, nothing, last = empty.snapshots[3].state  # type: ignore[misc]
            assert isinstance(first, Tensor)
            assert nothing is None
            assert first.device == last.device == device
            assert (first.tolist(), last.tolist()) == ([[3.0] * 4] * 2, [-3.0] * 5)
