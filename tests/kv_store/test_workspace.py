import psutil
import pytest
import torch

from kv_store.main_memory import KVShape
from kv_store.workspace import KVWorkspace, TensorCodec

SHAPE = KVShape(num_layers=3, num_kv_heads=2, head_dim=4, dtype="bfloat16")


def test_bytes_per_token_is_what_a_token_takes() -> None:
    workspace = KVWorkspace(SHAPE, 10)
    assert workspace.bytes_per_token == workspace.buffer.nbytes // 10 == workspace.export_kv(3, 4).nbytes


def test_layers_are_views_as_attention_takes_them() -> None:
    workspace = KVWorkspace(SHAPE, 10)
    keys, values = workspace.layer(1)
    assert keys.shape == values.shape == (1, 2, 10, 4)
    keys[:, :, 5] = 1
    values[:, :, 5] = 2
    assert workspace.buffer[1, 0, :, 5].eq(1).all()
    assert workspace.buffer[1, 1, :, 5].eq(2).all()
    assert workspace.buffer.sum() == 2 * 4 * (1 + 2)


def test_copies_through_torch_are_the_same() -> None:
    """As on an accelerator, whose memory NumPy cannot reach."""
    source, by_numpy, by_torch = (KVWorkspace(SHAPE, 10) for _ in range(3))
    source.buffer.normal_()
    exported = source.export_kv(2, 7)
    source._bits = by_torch._bits = None
    assert source.export_kv(2, 7).equal(exported)
    for target in (by_numpy, by_torch):
        target.import_kv(1, exported, 3, skip=2)
    assert by_torch.buffer.equal(by_numpy.buffer)
    assert by_torch.buffer[..., 1:4, :].equal(source.buffer[..., 4:7, :])


def test_an_export_is_a_copy() -> None:
    workspace = KVWorkspace(SHAPE, 10)
    payload = workspace.export_kv(2, 6)
    workspace.buffer.fill_(1)
    assert payload.is_contiguous()
    assert payload.eq(0).all()


@pytest.mark.parametrize(("start", "count", "skip"), [(9, 2, 0), (-1, 1, 0), (0, 0, 0), (0, 3, 2)])
def test_import_refuses_what_does_not_fit(start: int, count: int, skip: int) -> None:
    workspace = KVWorkspace(SHAPE, 10)
    payload = workspace.export_kv(0, 4)
    with pytest.raises(ValueError, match="tokens"):
        workspace.import_kv(start, payload, count, skip)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 2), (3, 2), (9, 11)])
def test_export_refuses_what_is_not_there(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="tokens"):
        KVWorkspace(SHAPE, 10).export_kv(start, stop)


def test_import_refuses_kv_of_another_shape() -> None:
    other = KVWorkspace(KVShape(num_layers=2, num_kv_heads=2, head_dim=4, dtype="bfloat16"), 10)
    with pytest.raises(ValueError, match="payload"):
        KVWorkspace(SHAPE, 10).import_kv(0, other.export_kv(0, 2), 2)


def test_a_workspace_takes_memory_for_the_tokens_that_were_written() -> None:
    shape = KVShape(30, 3, 64, "float32")  # of the bundled model
    process, most = psutil.Process(), 4096 * shape.bytes_per_token
    before = process.memory_info().rss
    workspace = KVWorkspace(shape, 4096)
    empty = process.memory_info().rss - before
    workspace.layer(0)[0][:, :, :512] = 1.0
    workspace.buffer[:, :, :, :512] = 1.0
    written = process.memory_info().rss - before
    assert empty < most / 32
    assert most / 16 < written < most / 4
    assert torch.equal(workspace.export_kv(500, 520)[:, :, :, 12:], torch.zeros(shape.of_tokens(8)))


def test_a_workspace_that_has_no_room_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="no memory for a workspace of 1000000000000 tokens"):
        KVWorkspace(SHAPE, 10**12)


SMALL = KVShape(num_layers=2, num_kv_heads=1, head_dim=4, dtype="bfloat16")


def test_tensors_come_back_bit_by_bit() -> None:
    payload = torch.randn(SMALL.of_tokens(5)).to(torch.bfloat16)
    payload[0, 0, 0, 0, 0] = torch.nan
    codec = TensorCodec(SMALL)
    decoded = codec.decode(codec.encode(payload, 5), 5)
    assert isinstance(decoded, torch.Tensor)
    assert decoded.view(torch.int16).equal(payload.view(torch.int16))


def test_a_file_costs_little_more_than_its_kv() -> None:
    payload = torch.zeros(SMALL.of_tokens(16), dtype=torch.bfloat16)
    assert len(TensorCodec(SMALL).encode(payload, 16)) <= payload.nbytes + 256
