"""Opens the store of a model: its tiers in memory and on disk, within their budgets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kv_store.disk import PageFolder, SnapshotFiles
from kv_store.interface import StoreError
from kv_store.main_memory import ArrayCodec, KVShape
from kv_store.page_snapshots import SnapshotTier
from kv_store.page_tree import PAGE_TOKENS
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier

if TYPE_CHECKING:
    import torch

    from kv_store.workspace import StateLayout

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TierBudgets:
    """Bytes of KV per tier, and the folder of the disk tier, if any.

    The states of recurrent layers have the same share of each other tier as `snapshots_bytes` are of the device's.
    """

    device_bytes: int
    host_bytes: int
    folder: Path | None
    folder_bytes: int
    snapshots_bytes: int = 0  # beside the device's

    def of_snapshots(self, tier_bytes: int) -> int:
        return tier_bytes * self.snapshots_bytes // max(1, self.device_bytes + self.snapshots_bytes)


def open_store(
    budgets: TierBudgets, shape: KVShape, device: torch.device | None, fingerprint: str, layout: StateLayout | None = None
) -> tuple[PagedStore, Callable[[], bool]]:
    """The store of a model, and a step of its idle work, which is False if none is left.

    Pages that an earlier process saved in the folder are resident from the start. Keeps nothing on disk if the folder
    is unusable even after setting aside the file in its place. Without the `layout` of their states, snapshots stay on
    the device. Without a device, payloads are arrays, and no torch is imported.
    """
    prepare: Callable[[], bool] = lambda: False  # noqa: E731
    storage = MemoryStorage()
    codec = ArrayCodec(shape)
    if device is not None:
        from kv_store.workspace import HostSnapshots, HostStorage, StateCodec, TensorCodec, TensorStorage

        storage, codec = TensorStorage(device), TensorCodec(shape)
    memory, snapshots = [Tier("device", budgets.device_bytes, storage)], list[SnapshotTier]()
    if budgets.snapshots_bytes:
        snapshots.append(SnapshotTier("snapshots", budgets.snapshots_bytes, MemoryStorage()))
    if device is not None and device.type != "cpu":
        host_bytes = budgets.host_bytes
        if layout is not None and (of_snapshots := budgets.of_snapshots(host_bytes)):
            snapshots.append(SnapshotTier("snapshots on the host", of_snapshots, HostSnapshots(layout)))
            host_bytes -= of_snapshots
        host = TensorStorage("cpu")
        if device.type == "cuda":
            host = HostStorage(PAGE_TOKENS * shape.bytes_per_token, host_bytes)
            prepare = host.prepare
        memory.append(Tier("host", host_bytes, host))
    with ExitStack() as on_failure:
        if budgets.folder is not None and budgets.folder_bytes:
            try:
                folder = PageFolder(budgets.folder, fingerprint, codec)
                on_failure.callback(folder.close)
                of_snapshots = 0 if layout is None else budgets.of_snapshots(budgets.folder_bytes)
                saved = []
                if layout is not None and of_snapshots:
                    files = SnapshotFiles(folder, StateCodec(layout))
                    saved = [SnapshotTier("snapshots on disk", of_snapshots, files)]
                tiers = [*memory, Tier("disk", budgets.folder_bytes - of_snapshots, folder)]
                store = PagedStore(tiers, shape.bytes_per_token, [*snapshots, *saved])
            except (StoreError, OSError) as error:
                log.warning("the store keeps nothing on disk: %s", error)
            else:
                on_failure.pop_all()
                return store, prepare
    return PagedStore(memory, shape.bytes_per_token, snapshots), prepare
