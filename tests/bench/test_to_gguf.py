from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.bench.conftest import RunBench
from tests.inference.tiny import write_checkpoint

gguf = pytest.importorskip("gguf")


@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_a_checkpoint_becomes_a_file_that_llama_cpp_knows(tmp_path: Path, run_bench: RunBench, kind: str) -> None:
    model = write_checkpoint(tmp_path / "model", kind, tie_word_embeddings=True)
    file = tmp_path / "model.gguf"
    run_bench("to_gguf.py", model, file)
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
