"""Hybrid models on the kernel against transformers, from both kinds of files, and its bits against themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType, quants
from torch import Tensor
from transformers import PreTrainedModel

from inference.backends.cpu.library import LEVEL_VARIABLE, MOST_OF_A_RULE, Level, levels, unavailable_reason, unsupported_reason
from inference.backends.cpu.model import KernelModel
from inference.backends.cpu.recurrent_workspace import RecurrentWorkspace
from inference.backends.generic import GenericModel
from inference.backends.model import Chunk
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.generic_shape import read_generic_shape
from inference.checkpoints.quantization import quantize
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from protocol.errors import BadModel
from protocol.settings import Weights
from tests.inference.backends.cpu.models import forward
from tests.inference.backends.cpu.test_decoder import TOLERANCES, distance
from tests.inference.generic_models import ON_KERNEL, make_model, write_model
from tests.inference.tiny_hybrid import convert

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))

EPSILON = 1e-5  # of the logits' standard deviation
TOKENS = 80
RATES = ("in_proj_a.weight", "in_proj_b.weight")  # which settings do not quantize
LEVELS_HERE = levels() if unavailable_reason() is None else ()


@pytest.fixture(scope="module", params=ON_KERNEL)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("hybrid"), kind, on_kernel=True)


def load(path: Path, threads: int = 1, weights: Weights = "auto") -> KernelModel:
    options = EngineOptions(str(path), dtype="float32", device="cpu", threads=threads, weights=weights)
    model = load_engine(options)._model  # type: ignore[attr-defined]
    assert isinstance(model, KernelModel)
    return model


def token_ids() -> list[int]:
    ids: list[int] = torch.randint(0, 500, (TOKENS,), generator=torch.Generator().manual_seed(1)).tolist()
    return ids


@torch.inference_mode()
def logits_of(model: PreTrainedModel) -> Tensor:
    logits: Tensor = model(torch.tensor([token_ids()]), use_cache=False).logits[0].float()
    return logits


def run(model: KernelModel, workspace: RecurrentWorkspace, start: int, stop: int) -> Tensor:
    (logits,) = forward(model._kernel, [Chunk(token_ids()[start:stop], start, workspace, stop - start)])
    workspace.keep()
    return logits


def workspace_of(model: KernelModel) -> RecurrentWorkspace:
    workspace = model.new_workspace()
    assert isinstance(workspace, RecurrentWorkspace)
    return workspace


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_logits_are_those_of_transformers(
    kind: str, folder: Path, tmp_path: Path, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces, from an earlier snapshot, and with KV and a snapshot that came from elsewhere; from both files."""
    monkeypatch.setenv(LEVEL_VARIABLE, level)
    expected = logits_of(make_model(kind, on_kernel=True))
    for path in (folder, convert(tmp_path / "model.gguf", folder)):
        model = load(path)
        workspace, other = workspace_of(model), workspace_of(model)

        def check(start: int, stop: int, on: RecurrentWorkspace, model: KernelModel = model) -> None:
            assert on.resumable(stop) == start
            found = run(model, on, start, stop)
            torch.testing.assert_close(found, expected[start:stop], rtol=0, atol=EPSILON * float(expected.std()))

        check(0, 30, workspace)
        check(30, 31, workspace)
        check(31, 34, workspace)
        model.forward([Chunk([5, 6, 7], 31, workspace)])
        workspace.snapshots.drop_beyond(31)
        check(31, 50, workspace)
        other.import_kv(0, workspace.export_kv(0, 50), 50)
        other.snapshots.put(50, workspace.snapshots[50])
        check(50, 70, other)
        check(50, 80, workspace)  # what the other one computed from the snapshot left it alone
        assert workspace.snapshots.used_bytes == len(workspace.snapshots) * model.snapshot_bytes


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("weights", ["auto", "int8", "int4"])
def test_bits_depend_on_neither_threads_nor_other_sequences_nor_tokens_in_a_call(
    folder: Path, level: Level, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, level)
    one, several = load(folder, 1, weights), load(folder, 3, weights)
    alone = workspace_of(one)
    expected = torch.cat([run(one, alone, place, place + 1) for place in range(TOKENS)])
    together, found = [workspace_of(several) for _ in range(2)], []
    for start in range(0, TOKENS, 8):
        chunks = [Chunk(token_ids()[start : start + 8], start, workspace, 8) for workspace in together]
        found.append(forward(several._kernel, chunks))
    for index, workspace in enumerate(together):
        workspace.keep()
        assert torch.equal(torch.cat([logits[index] for logits in found]), expected)
        assert torch.equal(workspace.buffer, alone.buffer)
        states = (each.snapshots[TOKENS].state[0] for each in (workspace, alone))  # type: ignore[index]
        assert torch.equal(*states)


@pytest.mark.parametrize("quantized", ["int8", "int4", "Q8_0", "Q4_0"])
def test_quantized_weights_give_their_logits(kind: str, folder: Path, tmp_path: Path, quantized: str) -> None:
    """Those of transformers with the rounded weights, within what the rounding of inputs to int8 makes of them."""
    rounded = make_model(kind, on_kernel=True)
    is_file = quantized.startswith("Q")
    for name, weight in rounded.named_parameters():
        if weight.dim() == 2 and (is_file or not name.endswith(RATES)):
            outer = "embed" in name or "lm_head" in name
            with torch.no_grad():
                weight.copy_(rounded_to(weight, "int8" if outer and not is_file else quantized))
    model = (
        load(convert(tmp_path / "model.gguf", folder, quantized)) if is_file else load(folder, weights=quantized)  # type: ignore[arg-type]
    )
    assert distance(run_in_calls(model), logits_of(rounded)) < TOLERANCES["int8"]


def rounded_to(weight: Tensor, to: str) -> Tensor:
    if to == "int8" or to == "int4":
        return quantize(weight, to).dequantized()
    kind = GGMLQuantizationType[to]
    return torch.from_numpy(quants.dequantize(quants.quantize(weight.detach().numpy(), kind), kind))


def test_keys_wider_than_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_class, config = ON_KERNEL["Qwen3_5Text"]
    wide = config | {"linear_key_head_dim": MOST_OF_A_RULE}
    monkeypatch.setitem(ON_KERNEL, "Qwen3_5Text", (model_class, wide))
    model = load(write_model(tmp_path, "Qwen3_5Text", on_kernel=True))
    expected = logits_of(make_model("Qwen3_5Text", on_kernel=True))
    torch.testing.assert_close(run_in_calls(model), expected, rtol=0, atol=EPSILON * float(expected.std()))


def run_in_calls(model: KernelModel) -> Tensor:
    workspace = workspace_of(model)
    return torch.cat([run(model, workspace, start, min(start + 30, TOKENS)) for start in range(0, TOKENS, 30)])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lfm2.rope.scaling.factor": 4.0}, r"rope\.scaling\.factor is 4\.0"),
        ({"lfm2.attention.head_count_kv": [1, 2, 1, 1]}, r"head_count_kv is \(1, 2, 1, 1\)"),
        ({"lfm2.attention.head_count_kv": [0, 0, -1, 0]}, "num_key_value_heads must be a positive integer, not -1"),
        ({"lfm2.attention.key_length": 16}, r"key_length is 16, which midfill does not support, only 32"),
        ({"lfm2.block_count": 2**31}, "block_count is 2147483648"),
        ({"qwen35.full_attention_interval": 0}, "full_attention_interval is 0"),
        ({"qwen35.ssm.group_count": 3}, "no decoder for this model of the architecture 'qwen35'"),
        ({"qwen35.rope.dimension_count": 256}, "no decoder for this model of the architecture 'qwen35'"),
        ({"qwen35.rope.dimension_count": 16}, "a rotary dimension of 16, no multiple of 32"),
    ],
)
def test_files_that_the_kernel_cannot_run_are_refused_by_name(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    kind = "Lfm2" if next(iter(changes)).startswith("lfm2") else "Qwen3_5Text"
    folder = write_model(tmp_path, kind, on_kernel=True)
    with pytest.raises(BadModel, match=reason):
        load(convert(tmp_path / "model.gguf", folder, changes=changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"linear_key_head_dim": 1024, "linear_num_key_heads": 4}, "None"),
        ({"linear_key_head_dim": 2048}, "a dimension of a linear key head of 2048 (supported: 1 to 1024)"),
        ({"linear_value_head_dim": 2048}, "a dimension of a linear value head of 2048 (supported: 1 to 1024)"),
        ({"linear_num_key_heads": 2048, "linear_num_value_heads": 2048}, "2048 linear key heads"),
        ({"linear_num_value_heads": 2048}, "2048 linear value heads (supported: 1 to 1024)"),
        ({"linear_conv_kernel_dim": 5}, "convolutions over 5 tokens (supported: 2 to 4)"),
    ],
)
def test_sizes_beyond_the_buffers_are_refused_by_name(changes: dict[str, int], reason: str) -> None:
    config = {"model_type": "qwen3_5_text", **ON_KERNEL["Qwen3_5Text"][1], **changes}
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}
    shape = read_generic_shape(config, "config.json")
    assert isinstance(shape, Architecture)
    assert str(unsupported_reason(shape)).startswith(reason)


def test_a_file_needs_the_kernel(folder: Path, tmp_path: Path) -> None:
    options = EngineOptions(str(convert(tmp_path / "model.gguf", folder)), device="cpu", kernel=False)
    with pytest.raises(BadModel, match="only the CPU kernel runs such a file, which the settings rule out"):
        load_engine(options)


def test_without_the_kernel_transformers_runs_the_folder(folder: Path) -> None:
    engine = load_engine(EngineOptions(str(folder), device="cpu", dtype="float32", kernel=False))
    assert isinstance(engine._model, GenericModel)  # type: ignore[attr-defined]
