from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from inference.checkpoint import open_checkpoint
from inference.decoder import Decoder
from inference.decoder_weights import TensorReader, read_decoder_weights
from kv_store.workspace import KVShape, KVWorkspace
from tests.inference.tiny import edit_config, write_checkpoint

CPU = torch.device("cpu")
EPSILON = 1e-4

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama_gqa": ("Llama", {}),
    "llama_mqa_tied": ("Llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama_mha": ("Llama", {"num_key_value_heads": 4}),
    "llama_biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_head_dim": ("Llama", {"head_dim": 24}),
    "llama_theta": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    "llama_linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama_llama3": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "llama_yarn": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
    ),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "mistral": ("Mistral", {"sliding_window": None}),
}


def load_decoder(folder: Path, context_tokens: int = 256) -> Decoder:
    checkpoint = open_checkpoint(folder, str(folder))
    shape = checkpoint.architecture
    reader = TensorReader(checkpoint.weights(), torch.float32, CPU)
    weights = read_decoder_weights(shape, reader, lambda share: None)
    workspace = KVWorkspace(KVShape(shape.layers, shape.kv_heads, shape.head_dim, torch.float32), context_tokens)
    return Decoder(shape, checkpoint.config, weights, workspace)


def random_tokens(count: int) -> list[int]:
    return torch.randint(0, 500, (count,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, config = CONFIGS[name]
    folder = write_checkpoint(tmp_path, kind, **config)
    theirs = getattr(transformers, f"{kind}ForCausalLM").from_pretrained(folder, dtype=torch.float32)
    token_ids = random_tokens(150)
    with torch.no_grad():
        expected = theirs(torch.tensor([token_ids])).logits[0]

    whole = load_decoder(folder)
    torch.testing.assert_close(whole.logits(whole.hidden(token_ids, 0)), expected, atol=EPSILON, rtol=EPSILON)

    chunked = load_decoder(folder)
    for start, stop in ((0, 64), (64, 65), (65, 66), (66, 140), (140, 150)):
        logits = chunked.logits(chunked.hidden(token_ids[start:stop], start))
        torch.testing.assert_close(logits, expected[start:stop], atol=EPSILON, rtol=EPSILON)


@pytest.mark.parametrize("name", ["llama_theta", "llama_linear", "llama_llama3", "llama_yarn"])
def test_rope_settings_as_older_checkpoints_have_them(name: str, tmp_path: Path) -> None:
    kind, config = CONFIGS[name]
    folder = write_checkpoint(tmp_path, kind, **config)
    token_ids = random_tokens(30)
    new = load_decoder(folder)
    expected = new.logits(new.hidden(token_ids, 0))
    rope = dict(config["rope_parameters"])
    theta = rope.pop("rope_theta")
    edit_config(folder, rope_parameters=None, rope_theta=theta, rope_scaling=None if len(rope) == 1 else rope)
    old = load_decoder(folder)
    assert torch.equal(old.logits(old.hidden(token_ids, 0)), expected)


def test_choice_is_the_most_probable_token(tiny_checkpoint: Path) -> None:
    decoder = load_decoder(tiny_checkpoint)
    token_ids = random_tokens(20)
    choice = decoder.choose_next(token_ids, 0)
    logprobs = decoder.logits(decoder.hidden(token_ids, 0))[-1].log_softmax(-1)
    assert choice.token_id == int(logprobs.argmax())
    assert choice.logprob == pytest.approx(float(logprobs.max()), abs=1e-4)


def test_what_stood_behind_the_crop_is_not_seen(tiny_checkpoint: Path) -> None:
    decoder = load_decoder(tiny_checkpoint)
    token_ids = random_tokens(40)
    cold = decoder.logits(decoder.hidden(token_ids, 0))
    decoder.hidden(random_tokens(80)[40:], 20)
    again = decoder.logits(decoder.hidden(token_ids[20:], 20))
    torch.testing.assert_close(again, cold[20:], atol=EPSILON, rtol=EPSILON)


def test_forward_beyond_the_workspace_is_refused(tiny_checkpoint: Path) -> None:
    decoder = load_decoder(tiny_checkpoint, context_tokens=32)
    with pytest.raises(AssertionError, match=r"tokens \[30, 40\) of 32"):
        decoder.prefill(random_tokens(10), 30)
