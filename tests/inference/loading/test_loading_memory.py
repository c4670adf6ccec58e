from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from inference.backends.cpu.library import unavailable_reason
from inference.checkpoints.checkpoint import find_checkpoint
from inference.loading.memory_plan import MemoryDemand, weights_bytes
from tests.inference.tiny import write_checkpoint

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
MEASURED = """
import gc, json, sys
from pathlib import Path
import torch
from inference.checkpoints.checkpoint import find_checkpoint
from inference.loading.llama import load_decoder
from inference.loading.options import EngineOptions

def load(folder):
    checkpoint = find_checkpoint(folder)
    options = EngineOptions(folder, weights="int4", threads=1)
    cpu, dtype = torch.device("cpu"), torch.float32
    return load_decoder(checkpoint, checkpoint.architecture, 64, cpu, dtype, options, lambda *_: None)

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


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is reset through Linux' /proc")
def test_loading_takes_little_more_memory_than_the_packed_weights(tmp_path: Path) -> None:
    small, large = (write_checkpoint(tmp_path / name, hidden_size=64, num_attention_heads=2) for name in ("a", "b"))
    config = json.loads((large / "config.json").read_text())
    sizes = {"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS}
    config |= {**sizes, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True}
    (large / "config.json").write_text(json.dumps(config))
    tensors = {
        "model.embed_tokens.weight": torch.randn(config["vocab_size"], HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
    }
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = torch.randn(shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = torch.ones(HIDDEN)
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, large / "model.safetensors")

    checkpoint = find_checkpoint(str(large))
    planned = weights_bytes(
        MemoryDemand(checkpoint.architecture, checkpoint.weights(), "float32", "int4", 64, 1, 0, 64, on_gpu=False)
    )
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, small, large], capture_output=True, text=True, check=True, timeout=300
    )
    peak, kept = json.loads(done.stdout.splitlines()[-1])
    assert planned > 60e6
    assert kept < 1.15 * planned
    assert peak < 1.3 * planned
