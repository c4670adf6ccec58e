"""Workspaces whose KV tells which prefix it belongs to."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from kv_store.disk import PageFolder
from kv_store.main_memory import KVShape
from kv_store.store import PagedStore
from kv_store.tiers import Tier
from kv_store.workspace import KVWorkspace, TensorCodec, TensorStorage

MAX_TOKENS = 128


class PrefixKV:
    """KV of token ids as a model would make it: of each token, it depends on all tokens up to it."""

    shape = KVShape(num_layers=2, num_kv_heads=2, head_dim=2, dtype="float32")
    bytes_per_token = shape.bytes_per_token

    def of(self, token_ids: Sequence[int]) -> torch.Tensor:
        """[layers, 2, kv_heads, tokens, head_dim]"""
        prefix, values = 1, []
        for token_id in token_ids:
            prefix = (prefix * 8191 + token_id) % 2**20
            values.append(prefix)
        lanes = torch.arange(16, dtype=torch.float32).reshape(2, 2, 2, 1, 2)
        return torch.tensor(values, dtype=torch.float32).reshape(1, 1, 1, -1, 1) * 16 + lanes

    def workspace(self, token_ids: Sequence[int] = ()) -> KVWorkspace:
        """A workspace that holds these tokens and nothing else."""
        workspace = KVWorkspace(self.shape, MAX_TOKENS)
        workspace.buffer.fill_(torch.nan)
        workspace.buffer[:, :, :, : len(token_ids)] = self.of(token_ids)
        return workspace

    def held(self, workspace: KVWorkspace, token_ids: Sequence[int]) -> list[bool]:
        """By position, whether the workspace has the KV that the token there must have."""
        found = workspace.buffer[:, :, :, : len(token_ids)] == self.of(token_ids)
        return found.permute(3, 0, 1, 2, 4).flatten(1).all(1).tolist()


@pytest.fixture
def kv() -> PrefixKV:
    return PrefixKV()


@pytest.fixture
def make_store(kv: PrefixKV, tmp_path: Path) -> Callable[..., PagedStore]:
    """A store with budgets in tokens (each page on disk costs its overhead on top), over tmp_path."""

    def make(device: int = 1000, host: int = 0, disk: int = 0, fingerprint: str = "model", root: Path = tmp_path) -> PagedStore:
        tiers = [Tier("device", device * kv.bytes_per_token, TensorStorage("cpu"))]
        if host:
            tiers.append(Tier("host", host * kv.bytes_per_token, TensorStorage("cpu")))
        if disk:
            folder = PageFolder(root, fingerprint, TensorCodec(kv.shape))
            pages = -(-disk // 16)
            tiers.append(Tier("disk", disk * kv.bytes_per_token + pages * folder.page_overhead, folder))
        return PagedStore(tiers, kv.bytes_per_token)

    return make
