"""Models whose layers keep states, on transformers' own modules, against transformers itself."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import BambaConfig, BambaForCausalLM, PreTrainedModel

from inference.backends.generic import GenericModel, load_generic
from inference.backends.model import Chunk
from inference.checkpoints.generic_shape import read_generic_shape
from kv_store.interface import Workspace
from kv_store.snapshots import Snapshots
from protocol.errors import BadModel
from tests.inference.generic_models import RECURRENT, make_model

EPSILON = 1e-5  # of the logits' standard deviation


@pytest.fixture(scope="module", params=RECURRENT)
def transformers_model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return make_model(str(request.param), recurrent=True)


def snapshots_of(workspace: Workspace) -> Snapshots:
    assert workspace.snapshots is not None
    return workspace.snapshots


def test_logits_are_those_of_transformers(transformers_model: PreTrainedModel) -> None:
    """In one forward, token by token, from an earlier snapshot, and with KV and a snapshot that came from elsewhere."""
    token_ids = torch.randint(0, 500, (80,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        expected = transformers_model(torch.tensor([token_ids]), use_cache=False).logits[0].float()
    model = GenericModel(transformers_model, 96, "here")
    workspace, other = model.new_workspace(), model.new_workspace()

    def check(start: int, stop: int, wanted: int = 1, on: Workspace = workspace) -> None:
        assert on.resumable(stop) == start
        logits = model.logits(Chunk(token_ids[start:stop], start, on, wanted))
        assert torch.allclose(logits, expected[stop - wanted : stop], atol=EPSILON * float(expected.std())), start

    check(0, 40)
    check(40, 41)
    check(41, 44, wanted=3)
    for other_tokens in ([7], [5, 6, 7]):
        model.forward([Chunk(other_tokens, 40, workspace)])
        snapshots_of(workspace).drop_beyond(40)
    check(40, 60, wanted=5)
    check(60, 61)
    other.import_kv(0, workspace.export_kv(0, 60), 60)
    snapshots_of(other).put(60, snapshots_of(workspace)[60])
    check(60, 61, on=other)
    check(61, 80, on=other)
    assert snapshots_of(workspace).deepest(80) == 61  # what the other workspace computed from it left it alone


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_their_size_is_known_from_the_config(transformers_model: PreTrainedModel, dtype: torch.dtype) -> None:
    """So the plan of memory, which the doctor shows without loading the model, counts them as loading does."""
    shape = read_generic_shape(transformers_model.config.to_dict(), "here")
    model = GenericModel(copy.deepcopy(transformers_model).to(dtype), 64, "here")
    assert 0 < shape.snapshot_bytes(dtype.itemsize) == model.snapshot_bytes


def test_snapshots_are_counted_at_their_size(transformers_model: PreTrainedModel) -> None:
    model = GenericModel(transformers_model, 64, "here")
    workspace = model.new_workspace()
    model.forward([Chunk([5] * 40, 0, workspace)])
    model.forward([Chunk([6], 40, workspace)])
    tensors = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for _, snapshot in snapshots_of(workspace).within(64)
        for tensor in snapshot.state  # type: ignore[attr-defined]
        if tensor is not None
    }
    assert snapshots_of(workspace).used_bytes == 2 * model.snapshot_bytes == sum(tensors.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_family_that_transformers_computes_otherwise_in_pieces_is_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    """A fault of a fiftieth of a standard deviation, which is more than rounding to float16."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    mamba = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "attn_layer_indices": [1]}
    config = BambaConfig(vocab_size=605, intermediate_size=64, **sizes, **mamba)
    model = BambaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "A_log" not in name:
                parameter.copy_(0.5 * (1 if "embed" in name else parameter.shape[-1] ** -0.5) * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    with pytest.raises(BadModel, match="computes other logits for a text in pieces than at once"):
        load_generic(tmp_path, 64, torch.device("cpu"), dtype)
