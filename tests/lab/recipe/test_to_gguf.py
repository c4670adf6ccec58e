from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.recipe.to_gguf import write_gguf
from midfill_lab.training.from_gguf import read_base
from midfill_lab.training.options import BITS, OptionError, Quantization
from midfill_lab.training.rounding import round_trip
from protocol.errors import BadModel
from tests.inference.smollm import TEXT, write_smollm
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import split
from tests.inference.tiny_gguf import write_gguf as write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_smollm(tmp_path_factory.mktemp("model"))


def logits(folder: Path, ids: list[int]) -> torch.Tensor:
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        result: torch.Tensor = loaded(input_ids=torch.tensor([ids])).logits
    return result


def test_a_model_comes_back_from_a_gguf_file(model: Path, tmp_path: Path) -> None:
    write_gguf(str(model), tmp_path / "model.gguf")
    read_base(tmp_path / "model.gguf", tmp_path / "base", dtype=torch.float32)
    before, after = find_checkpoint(str(model)).tokenizer(), find_checkpoint(str(tmp_path / "base")).tokenizer()
    assert list(before.encode(TEXT)) == list(after.encode(TEXT))
    assert after.format.name == "smollm2"
    ids = list(after.encode(TEXT))
    torch.testing.assert_close(logits(tmp_path / "base", ids), logits(model, ids), atol=0.02, rtol=0)  # bfloat16


def test_digits_are_split_singly_as_in_the_file(model: Path, tmp_path: Path) -> None:
    write_gguf(str(model), tmp_path / "model.gguf")
    read_base(tmp_path / "model.gguf", tmp_path / "base")
    tokenizer = Tokenizer.from_file(str(tmp_path / "base" / "tokenizer.json"))
    assert tokenizer.encode("x = 12345").tokens[-5:] == ["1", "2", "3", "4", "5"]


def test_reserved_tokens_become_markers_with_embeddings_of_their_own(model: Path, tmp_path: Path) -> None:
    state = load_file(model / "model.safetensors")
    write_gguf(str(model), tmp_path / "model.gguf")
    read_base(tmp_path / "model.gguf", tmp_path / "base", (4, 5, 6), dtype=torch.float32)
    checkpoint = find_checkpoint(str(tmp_path / "base"))
    added = {
        token["content"]: token["id"] for token in json.loads((checkpoint.folder / "tokenizer.json").read_text())["added_tokens"]
    }
    assert [added[f"<|fim_{name}|>"] for name in ("prefix", "suffix", "middle")] == [4, 5, 6]
    old, new = (
        state["model.embed_tokens.weight"],
        load_file(checkpoint.folder / "model.safetensors")["model.embed_tokens.weight"],
    )
    moved = (new - old).norm(dim=1) / old.norm(dim=1)
    assert [index for index in range(len(moved)) if moved[index] > 0.1] == [4, 5, 6]


@pytest.mark.parametrize("reserved", [(4, 5), (4, 4, 5), (4, 5, 100), (1, 2, 3)])
def test_ids_that_are_no_three_special_tokens_are_refused(reserved: tuple[int, ...], model: Path, tmp_path: Path) -> None:
    write_gguf(str(model), tmp_path / "model.gguf")
    with pytest.raises(OptionError):
        read_base(tmp_path / "model.gguf", tmp_path / "base", reserved)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="is missing"):
        read_base(tmp_path / "model.gguf", tmp_path / "base")
    (tmp_path / "model.gguf").write_bytes(b"GGUX" + bytes(100))
    with pytest.raises(BadModel, match="is not a GGUF file"):
        read_base(tmp_path / "model.gguf", tmp_path / "base")


def test_a_file_without_the_suffix_is_read_too(model: Path, tmp_path: Path) -> None:
    write_gguf(str(model), tmp_path / "model.gguf")
    (tmp_path / "model.gguf").rename(tmp_path / "sha256-0123")
    read_base(tmp_path / "sha256-0123", tmp_path / "base", dtype=torch.float32)
    assert logits(tmp_path / "base", [5, 6, 7]).isfinite().all()


def test_scaled_positions_are_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    scaled = write_tiny(tmp_path / "scaled.gguf", tiny_checkpoint, changes={"llama.rope.scaling.factor": 2.0})
    with pytest.raises(BadModel, match="has RoPE of type 'linear': train from the model's safetensors"):
        read_base(scaled, tmp_path / "base")


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_weights_of_a_file_in_parts_come_back_bit_for_bit(kind: str, tied: bool, tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", kind, tie_word_embeddings=tied)
    (first, _) = split(write_tiny(tmp_path / "tiny.gguf", model), tmp_path, model)
    read_base(first, tmp_path / "base", dtype=torch.float32)
    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "base" / "model.safetensors")
    assert {name: tensor.tolist() for name, tensor in after.items()} == {name: before[name].float().tolist() for name in before}
    torch.testing.assert_close(logits(tmp_path / "base", [5, 6, 7]), logits(model, [5, 6, 7]), atol=0, rtol=0)
    assert json.loads((tmp_path / "base" / "config.json").read_text())["architectures"] == [f"{kind}ForCausalLM"]


@pytest.mark.parametrize("kind", BITS)
def test_what_training_rounds_to_is_what_a_file_of_that_type_holds(kind: str) -> None:
    weights = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    weights[3, :32] = 0
    weights[4, :32] = 0.5
    type_ = gguf.GGMLQuantizationType[kind.upper()]
    held = gguf.dequantize(gguf.quantize(weights.numpy(), type_), type_)
    np.testing.assert_allclose(round_trip(weights, kind).numpy(), held, atol=1e-6)
    error = (round_trip(weights, kind) - weights).norm() / weights.norm()
    assert 0 < error < 2 ** (3 - BITS[kind] // 1)


def test_a_quantized_file_holds_its_types_and_markers(model: Path, tmp_path: Path) -> None:
    write_gguf(str(model), tmp_path / "model.gguf", Quantization("q4_1", "q5_1"), licence="apache-2.0")
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["token_embd.weight"] == "Q5_1"
    assert kinds["blk.0.attn_q.weight"] == "Q4_1"
    assert kinds["blk.0.attn_norm.weight"] == "F32"
    assert reader.fields["tokenizer.ggml.pre"].contents() == "smollm"
    assert reader.fields["tokenizer.ggml.fim_suf_token_id"].contents() == 5
    assert reader.fields["general.license"].contents() == "apache-2.0"


def test_a_tokenizer_that_llama_cpp_does_not_know_is_refused(model: Path, tmp_path: Path) -> None:
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    definition["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(BadModel, match="splits text"):
        write_gguf(str(tmp_path), tmp_path / "model.gguf")


@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_a_checkpoint_becomes_a_file_that_llama_cpp_knows(tmp_path: Path, kind: str) -> None:
    model = write_checkpoint(tmp_path / "model", kind, tie_word_embeddings=True)
    file = tmp_path / "model.gguf"
    write_gguf(str(model), file)
    reader = gguf.GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    architecture = kind.lower()
    assert fields["general.architecture"] == architecture
    assert fields[f"{architecture}.block_count"] == 2
    assert fields[f"{architecture}.attention.head_count_kv"] == 2
    assert fields["tokenizer.ggml.pre"] == "qwen2"
    end = fields["tokenizer.ggml.tokens"].index("<|endoftext|>")
    assert fields["tokenizer.ggml.eos_token_id"] == end
    assert fields["tokenizer.ggml.token_type"][end] == gguf.TokenType.CONTROL
    theirs = {tensor.name: tensor for tensor in reader.tensors}
    ours = load_file(model / "model.safetensors")
    assert len(theirs) == len(ours)
    down = ours["model.layers.1.mlp.down_proj.weight"].bfloat16().float()
    assert torch.equal(values(theirs["blk.1.ffn_down.weight"]), down)
    query = ours["model.layers.0.self_attn.q_proj.weight"].bfloat16().float()
    if kind == "Llama":  # rows that turn together: 0 and 6 of 12 become neighbours
        query = query.view(4, 2, 6, -1).transpose(1, 2).reshape(48, -1)
    assert torch.equal(values(theirs["blk.0.attn_q.weight"]), query)


def values(tensor: object) -> torch.Tensor:
    return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type))  # type: ignore[attr-defined]
