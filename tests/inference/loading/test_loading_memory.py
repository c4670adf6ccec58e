from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from inference.backends.cpu.library import unavailable_reason
from inference.checkpoints.checkpoint import find_checkpoint
from inference.loading.memory_plan import MemoryDemand, weights_bytes
from protocol.settings import Weights
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import KERNEL_SHAPE, model_fields, their_name, tokenizer_fields, write_file, write_gguf

LAYERS, HIDDEN, INTERMEDIATE = 24, 512, 2048
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, HIDDEN),
    "self_attn.v_proj": (HIDDEN, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
NORMS = ("input_layernorm", "post_attention_layernorm")
MEASURED = """
import gc, json, sys
from pathlib import Path
import torch
from inference.checkpoints.checkpoint import find_checkpoint
from inference.loading.kernel import load_on_kernel
from inference.loading.options import EngineOptions

def load(folder):
    checkpoint = find_checkpoint(folder)
    options = EngineOptions(folder, weights=sys.argv[3], threads=1)
    return load_on_kernel(checkpoint, checkpoint.architecture, 64, "float32", options, lambda *_: None)

def resident(key):
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))

torch.set_num_threads(1)
load(sys.argv[1])  # imports all that loading imports
gc.collect()
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # resets the peak
model = load(sys.argv[2])
print(json.dumps([resident("VmHWM") - before, resident("VmRSS") - before]))
"""


pytestmark = [
    pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason())),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is reset through Linux' /proc"),
]


def test_loading_takes_little_more_memory_than_the_packed_weights(tmp_path: Path) -> None:
    small, large = config_of(tmp_path / "a"), config_of(tmp_path / "b", large=True)
    vectors, matrices = shapes(large)
    tensors = {name: torch.ones(count) for name, count in vectors.items()}
    tensors |= {name: torch.randn(shape) for name, shape in matrices.items()}
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, large / "model.safetensors")
    # The system maps more of the file around a page than is read, as its cache happens to lie: the less of two.
    planned, peak, kept = (min(counts) for counts in zip(*(loaded(small, large, "int8") for _ in range(2)), strict=True))
    assert planned > 50e6
    assert kept < 1.15 * planned
    assert peak < 1.3 * planned


@pytest.mark.parametrize("kind", ["Q4_K", "F16"])
def test_a_gguf_file_is_never_in_memory_whole(tmp_path: Path, kind: str) -> None:
    """Beyond what the kernel keeps, loading takes some rows, and not those of the file."""
    small, large = config_of(tmp_path / "a"), config_of(tmp_path / "b", large=True)
    vectors, matrices = shapes(large)
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    tensors = {name: (np.ones(count, np.float32), "F32") for name, count in vectors.items()} | {
        name: (np.zeros((rows, columns // values * size), np.uint8), kind) for name, (rows, columns) in matrices.items()
    }
    fields = model_fields(json.loads((large / "config.json").read_text())) | tokenizer_fields(large / "tokenizer.json")
    theirs = {their_name(*name.rsplit(".", 1)): each for name, each in tensors.items()}
    file = write_file(tmp_path / "large.gguf", fields, theirs)
    planned, peak, kept = loaded(write_gguf(tmp_path / "small.gguf", small, "F16" if kind == "F16" else "Q8_0"), file, "auto")
    size = file.stat().st_size
    print(f"\n{kind}: {size} bytes; peak {peak / planned:.2f} of the plan, {peak / size:.2f} of the file")  # noqa: T201
    assert planned > 50e6
    assert planned < 1.1 * size or kind == "Q4_K"  # whose 6-bit scales and minima become float16: 1.11
    assert kept < 1.15 * planned
    assert peak < 1.3 * planned


def config_of(folder: Path, *, large: bool = False) -> Path:
    """A checkpoint of the kernel's shape; with `large`, a config whose weights are still to be written."""
    write_checkpoint(folder, **KERNEL_SHAPE)
    if large:
        config = json.loads((folder / "config.json").read_text())
        sizes = {"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS}
        config |= {**sizes, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
        config["tie_word_embeddings"] = True
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def shapes(folder: Path) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """The vectors and the matrices of the large checkpoint by name."""
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    vectors, matrices = {"model.norm.weight": HIDDEN}, {"model.embed_tokens.weight": (vocabulary, HIDDEN)}
    for layer in range(LAYERS):
        vectors |= {f"model.layers.{layer}.{name}.weight": HIDDEN for name in NORMS}
        matrices |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in SHAPES.items()}
    return vectors, matrices


def loaded(small: Path, large: Path, weights: Weights) -> tuple[int, int, int]:
    """The planned bytes of the large model's weights, and by how many its process grew at the peak and at the end."""
    checkpoint = find_checkpoint(str(large))
    shape, files = checkpoint.architecture, checkpoint.weights()
    demand = MemoryDemand(shape, files, "float32", weights, 64, 1, 0, 64, on_gpu=False, on_kernel=True)
    command = [sys.executable, "-c", MEASURED, small, large, weights]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    peak, kept = json.loads(done.stdout.splitlines()[-1])
    return weights_bytes(demand), peak, kept
