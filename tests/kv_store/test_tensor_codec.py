import pytest
import torch
from safetensors.torch import save

from kv_store.workspace import KVShape, TensorCodec

SHAPE = KVShape(num_layers=2, num_kv_heads=1, head_dim=4, dtype=torch.bfloat16)


def test_tensors_come_back_bit_by_bit() -> None:
    payload = torch.randn(SHAPE.of_tokens(5)).to(torch.bfloat16)
    payload[0, 0, 0, 0, 0] = torch.nan
    codec = TensorCodec(SHAPE)
    decoded = codec.decode(codec.encode(payload, 5), 5)
    assert isinstance(decoded, torch.Tensor)
    assert decoded.view(torch.int16).equal(payload.view(torch.int16))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"nonsense", "not a safetensors file"),
        (save({"other": torch.zeros(SHAPE.of_tokens(5), dtype=SHAPE.dtype)}), "another model"),
        (save({"kv": torch.zeros(SHAPE.of_tokens(4), dtype=SHAPE.dtype)}), "another model"),
        (save({"kv": torch.zeros(SHAPE.of_tokens(5), dtype=torch.float16)}), "another model"),
    ],
)
def test_anything_else_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TensorCodec(SHAPE).decode(data, 5)


def test_a_file_costs_little_more_than_its_kv() -> None:
    payload = torch.zeros(SHAPE.of_tokens(16), dtype=SHAPE.dtype)
    assert len(TensorCodec(SHAPE).encode(payload, 16)) <= payload.nbytes + 256
