from __future__ import annotations

import pytest
import torch

from inference.checkpoints.gguf.blocks import dequantized
from tests.inference.backends.cpu.test_stored import reference, stored
from tests.inference.simulated_cuda import SimulatedCuda

KINDS = ["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q3_K"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_is_dequantized_to_its_values_on_the_device_that_has_it(simulated: SimulatedCuda, kind: str) -> None:
    rows = torch.from_numpy(stored(kind))
    exact = reference(rows.numpy(), kind)
    there = rows.to("cuda:0")
    simulated.host_bytes = 0
    found = dequantized(there, kind)
    assert str(found.device) == "cuda:0"
    assert simulated.host_bytes == (rows.nbytes if kind == "Q3_K" else 0)
    assert torch.equal(found.cpu().float(), exact)
    assert torch.equal(dequantized(rows, kind).float(), exact)
