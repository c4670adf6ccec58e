from __future__ import annotations

import pytest
import torch

from inference.backends.generic import SplitWorkspace
from kv_store.workspace import KVShape, KVWorkspace

SHAPE = KVShape(num_layers=3, num_kv_heads=2, head_dim=4, dtype=torch.float32)
CPU = torch.device("cpu")
ELSEWHERE = torch.device("cpu", 0)  # another device to everything that compares devices


def filled(devices: list[torch.device]) -> tuple[SplitWorkspace, KVWorkspace]:
    split, whole = SplitWorkspace(SHAPE, 8, devices), KVWorkspace(SHAPE, 8)
    payload = torch.randn(SHAPE.of_tokens(8), generator=torch.Generator().manual_seed(0))
    split.import_kv(0, payload, 8)
    whole.import_kv(0, payload, 8)
    return split, whole


@pytest.mark.parametrize("devices", [[CPU] * 3, [CPU, ELSEWHERE, ELSEWHERE], [CPU, ELSEWHERE, CPU]])
def test_payloads_are_those_of_one_workspace(devices: list[torch.device]) -> None:
    split, whole = filled(devices)
    assert split.bytes_per_token == whole.bytes_per_token
    assert torch.equal(split.export_kv(2, 7), whole.export_kv(2, 7))
    payload = torch.randn(SHAPE.of_tokens(5))
    for workspace in (split, whole):
        workspace.import_kv(1, payload, 3, skip=2)
    assert torch.equal(split.export_kv(0, 8), whole.export_kv(0, 8))
    for index, (keys, values) in enumerate(split.layers()):
        assert torch.equal(keys, whole.layer(index)[0])
        assert torch.equal(values, whole.layer(index)[1])


def test_payloads_of_another_shape_are_refused() -> None:
    split, _ = filled([CPU] * 3)
    with pytest.raises(ValueError, match="the payload has 2 layers, but the model has 3"):
        split.import_kv(0, torch.zeros(2, 2, 2, 1, 4), 1)
    with pytest.raises(ValueError, match="exceed a workspace of 8"):
        split.import_kv(7, torch.zeros(SHAPE.of_tokens(2)), 2)
