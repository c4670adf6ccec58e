"""Chooses the tiers of a model's store: device memory, main memory behind a GPU, and a folder if one is set."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from kv_store.disk.page_folder import PageFolder
from kv_store.disk.tensor_codec import TensorCodec
from kv_store.errors import StoreError
from kv_store.page_tree import PAGE_TOKENS
from kv_store.paged.store import PagedStore
from kv_store.tiers.tensor_storage import HostStorage, TensorStorage
from kv_store.tiers.tier import Tier
from kv_store.workspace import KVShape

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TierBudgets:
    """Bytes of KV per tier, and the folder of the disk tier, if any."""

    device_bytes: int
    host_bytes: int
    folder: Path | None
    folder_bytes: int


def open_store(
    budgets: TierBudgets, shape: KVShape, device: torch.device, fingerprint: str
) -> tuple[PagedStore, Callable[[], bool]]:
    """The store of a model, and a step of its idle work, which is False if none is left.

    Pages that an earlier process saved in the folder are resident from the start. Keeps nothing on disk if the folder
    is unusable even after setting aside the file in its place.
    """
    prepare: Callable[[], bool] = lambda: False  # noqa: E731
    memory = [Tier("device", budgets.device_bytes, TensorStorage(device))]
    if device.type == "cuda":
        host = HostStorage(PAGE_TOKENS * shape.bytes_per_token, budgets.host_bytes)
        prepare = host.prepare
        memory.append(Tier("host", budgets.host_bytes, host))
    elif device.type != "cpu":
        memory.append(Tier("host", budgets.host_bytes, TensorStorage("cpu")))
    with ExitStack() as on_failure:
        if budgets.folder is not None:
            try:
                folder = PageFolder(budgets.folder, fingerprint, TensorCodec(shape))
                on_failure.callback(folder.close)
                store = PagedStore([*memory, Tier("disk", budgets.folder_bytes, folder)], shape.bytes_per_token)
            except (StoreError, OSError) as error:
                log.warning("the store keeps nothing on disk: %s", error)
            else:
                on_failure.pop_all()
                return store, prepare
    return PagedStore(memory, shape.bytes_per_token), prepare
