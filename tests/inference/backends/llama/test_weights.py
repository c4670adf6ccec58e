from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inference.backends.cpu.stored import StoredMatrix, StoredReader
from inference.backends.layer_weights import GgufTensors, LayerWeights
from inference.backends.llama import weights
from inference.backends.llama.decoder import rotation_tables
from inference.backends.llama.weights import DecoderWeights, GgufReader, TensorReader, read_decoder_weights
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint, open_checkpoint
from inference.checkpoints.gguf import blocks
from inference.checkpoints.gguf.blocks import dequantized
from inference.checkpoints.quantized_matrix import QuantizedMatrix
from protocol.errors import BadModel
from tests.inference.simulated_cuda import SimulatedCuda
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import KERNEL_SHAPE, write_gguf

CPU = torch.device("cpu")
DOWN, GATE_UP = "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.gate_proj.weight"


def architecture_of(checkpoint: Checkpoint) -> Architecture:
    assert isinstance(checkpoint.architecture, Architecture)
    return checkpoint.architecture


def weights_of(path: Path) -> DecoderWeights:
    checkpoint = open_checkpoint(path, "tiny")
    architecture, files = architecture_of(checkpoint), checkpoint.weights()
    reader: Any = (
        GgufReader(files, architecture, torch.float32, CPU) if path.suffix == ".gguf" else TensorReader(files, torch.float32, CPU)
    )
    return read_decoder_weights(architecture, reader, lambda _: None)


def tensors_of(weights: DecoderWeights) -> dict[str, Tensor]:
    found = {"embedding": weights.embedding, "final_norm": weights.final_norm, "head": weights.head}
    for index, layer in enumerate(weights.layers):
        found |= {f"{index}.{field.name}": getattr(layer, field.name) for field in fields(LayerWeights)}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


GRANITE = {"attention_multiplier": 0.2, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 6.0}


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("Llama", {"attention_bias": True, "mlp_bias": True}),
        ("Llama", {"tie_word_embeddings": True, "head_dim": 24}),
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 16}),
        ("Granite", GRANITE),
    ],
)
def test_weights_are_those_of_the_safetensors_file(tmp_path: Path, kind: str, config: dict[str, Any]) -> None:
    folder = write_checkpoint(tmp_path / "tiny", kind, **config)
    theirs, ours = tensors_of(weights_of(folder)), tensors_of(weights_of(write_gguf(tmp_path / "tiny.gguf", folder)))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_factors_of_granite_are_those_of_its_config(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", "Granite", **GRANITE)
    expected = architecture_of(open_checkpoint(folder, "tiny"))
    ours = architecture_of(open_checkpoint(write_gguf(tmp_path / "tiny.gguf", folder), "tiny"))
    for name in ("attention_scale", "embedding_scale", "residual_scale", "logits_scale"):
        assert getattr(ours, name) == pytest.approx(getattr(expected, name))
    plain = write_gguf(tmp_path / "plain.gguf", folder, changes={"granite.attention.scale": None})
    assert architecture_of(open_checkpoint(plain, "tiny")).attention_scale == ours.head_dim**-0.5
    unturned = write_gguf(tmp_path / "unturned.gguf", folder, changes={"granite.rope.scaling.finetuned": False})
    with pytest.raises(BadModel, match=r"rope\.scaling\.finetuned is False"):
        open_checkpoint(unturned, "tiny")


def test_rope_is_turned_by_the_divided_frequencies(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    original = {"rope_parameters": rope | {"original_max_position_embeddings": 64}}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "tiny", **original), "tiny")
    architecture = architecture_of(checkpoint)
    default = {**original, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    plain = architecture_of(open_checkpoint(write_checkpoint(tmp_path / "plain", **default), "plain"))

    def first_turn(shape: Architecture, config: Any) -> Tensor:
        cosines, sines = rotation_tables(shape, config, 2, torch.float32, CPU)
        return torch.atan2(sines, cosines)[1, : shape.head_dim // 2]

    divisors = first_turn(plain, default) / first_turn(architecture, checkpoint.config)
    assert divisors.max() == pytest.approx(8.0)
    divided = {**checkpoint.config, "rope_parameters": {"rope_theta": 1e4, "divisors": divisors.tolist()}}
    ours = Architecture(**{name: getattr(plain, name) for name in Architecture.__dataclass_fields__} | {"rope_type": "divided"})
    torch.testing.assert_close(first_turn(ours, divided), first_turn(architecture, checkpoint.config))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"), **KERNEL_SHAPE)


def reader_of(path: Path, **options: Any) -> StoredReader:
    checkpoint = open_checkpoint(path, "tiny")
    return StoredReader(GgufTensors(checkpoint.weights(), architecture_of(checkpoint)), **options)


def values(matrix: QuantizedMatrix) -> Tensor:
    found: Tensor = matrix.map(torch.from_numpy).dequantized()
    return found


@pytest.mark.parametrize(("kind", "type_"), [("Q8_0", "int8"), ("Q4_0", "centred_int4"), ("Q4_1", "int4"), ("Q5_0", "int5")])
def test_quantized_matrices_stay_quantized(folder: Path, tmp_path: Path, kind: str, type_: str) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", folder, kind)
    query, key = (f"model.layers.0.self_attn.{name}_proj.weight" for name in ("q", "k"))
    stored = reader_of(path).matrix({query: 64, key: 32}, 64)
    assert isinstance(stored, StoredMatrix)
    assert (stored.type, stored.shape) == (type_, (96, 64))
    matrix = stored[:].map(torch.from_numpy)
    assert matrix.type == type_
    exact = GgufReader(open_checkpoint(path, "").weights(), architecture_of(open_checkpoint(path, "")), torch.float32, CPU)
    steps = matrix.scales.abs().max()
    assert (matrix.dequantized() - exact.matrix({query: 64, key: 32}, 64)).abs().max() <= steps / 2
    vector = reader_of(path).vector("model.norm.weight", 64)
    assert torch.equal(torch.from_numpy(vector), weights_of(folder).final_norm)


def test_matrices_of_several_types_become_int8(folder: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", folder, "Q4_1", ffn_up="F16")
    reader = reader_of(path)
    rows = {GATE_UP: 128, GATE_UP.replace("gate", "up"): 128}
    matrix = reader.matrix(rows, 64)
    assert isinstance(matrix, StoredMatrix)
    assert matrix.type == matrix[:].type == matrix[:1].type == "int8"
    exact = torch.from_numpy(reader_of(path, only="int4").matrix(rows, 64)[:])
    assert (values(matrix[:]) - exact).abs().max() <= float(matrix[:].scales.max())
    turned = matrix.map(lambda order: np.concatenate([order[120:136], np.zeros(2, np.int64), order[:3]]))
    assert torch.equal(values(turned[1:19])[:15], values(matrix[121:136]))
    assert not values(turned[16:18]).any()


def test_matrices_of_two_4_bit_types_keep_their_values(folder: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", folder, "Q4_1", ffn_up="Q4_0")
    rows = {GATE_UP: 128, GATE_UP.replace("gate", "up"): 128}
    matrix = reader_of(path, only="int4").matrix(rows, 64)
    assert isinstance(matrix, StoredMatrix)
    assert matrix.type == matrix[:].type == matrix[200:].type == "int4"
    checkpoint = open_checkpoint(path, "")
    exact = GgufReader(checkpoint.weights(), architecture_of(checkpoint), torch.float32, CPU).matrix(rows, 64)
    torch.testing.assert_close(values(matrix[:]), exact, rtol=0, atol=2**-11 * 8 * exact.abs().max().item())


def test_a_setting_keeps_the_matrices_of_its_type(folder: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", folder, "Q4_1", token_embd="Q8_0")
    embedding = {"model.embed_tokens.weight": architecture_of(open_checkpoint(path, "")).vocabulary}
    for only, kept, other in (("int4", {DOWN: 64}, embedding), ("int8", embedding, {DOWN: 64})):
        reader = reader_of(path, only=only)
        assert reader.matrix(kept, 64 if kept is embedding else 128).type is not None
        matrix = reader.matrix(other, 64 if other is embedding else 128)
        assert matrix.type is None
        assert matrix[:].dtype == np.float32


def test_a_file_is_dequantized_where_the_weights_will_be_few_rows_at_a_time(
    simulated: SimulatedCuda, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "tiny.gguf", folder, "Q4_1", ffn_up="Q5_0"), "")
    rows = {GATE_UP: 128, GATE_UP.replace("gate", "up"): 128}
    files, architecture = checkpoint.weights(), architecture_of(checkpoint)
    expected = GgufReader(files, architecture, torch.bfloat16, CPU).matrix(rows, 64)
    pieces = list[tuple[str, int]]()

    def noting(stored: Tensor, kind: str) -> Tensor:
        pieces.append((str(stored.device), len(stored)))
        return dequantized(stored, kind)

    monkeypatch.setattr(weights, "VALUES_AT_ONCE", 50 * 64)
    monkeypatch.setattr(blocks, "dequantized", noting)
    simulated.host_bytes = 0
    found = GgufReader(files, architecture, torch.bfloat16, torch.device("cuda", 0)).matrix(rows, 64)
    assert pieces == 2 * [("cuda:0", 50), ("cuda:0", 50), ("cuda:0", 28)]
    assert not simulated.host_bytes
    assert torch.equal(found.cpu(), expected)


def test_missing_and_misshapen_tensors_are_named(folder: Path, tmp_path: Path) -> None:
    reader = reader_of(write_gguf(tmp_path / "tiny.gguf", folder))
    with pytest.raises(BadModel, match="no tensor 'nothing'"):
        reader.vector("nothing", 64)
    with pytest.raises(BadModel, match=rf"tiny\.gguf: {DOWN} has the shape \(64, 128\), and the model's fields say"):
        reader.matrix({DOWN: 64}, 64)


@pytest.mark.parametrize("is_gguf", [False, True])
def test_a_file_that_is_cut_or_written_over_ends_no_process_and_changes_no_weights(tmp_path: Path, is_gguf: bool) -> None:
    folder = write_checkpoint(tmp_path)
    path = write_gguf(tmp_path / "tiny.gguf", folder, "F32") if is_gguf else folder
    checkpoint = open_checkpoint(path, "tiny")
    architecture, files = architecture_of(checkpoint), checkpoint.weights()
    reader: Any = GgufReader(files, architecture, torch.float32, CPU) if is_gguf else TensorReader(files, torch.float32, CPU)
    weight = reader.matrix({DOWN: architecture.hidden}, architecture.intermediate)
    before, file = weight.clone(), files[0]
    file.path.write_bytes(bytes(file.size))  # in place
    assert torch.equal(weight, before)
    with file.path.open("r+b") as opened:
        opened.truncate(file.tensors[DOWN].start + 1)
    with pytest.raises(BadModel, match=f"^{file.path} is shorter than when it was opened"):
        reader.matrix({DOWN: architecture.hidden}, architecture.intermediate)
