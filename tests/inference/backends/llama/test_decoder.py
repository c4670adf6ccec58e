from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from inference.backends.llama.decoder import Decoder
from inference.backends.llama.weights import TensorReader, read_decoder_weights
from inference.backends.model import Chunk
from inference.checkpoints.checkpoint import open_checkpoint
from kv_store.workspace import KVWorkspace
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
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}},
    ),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "granite": (
        "Granite",
        {"attention_multiplier": 0.2, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 6.0},
    ),
}


def load_decoder(folder: Path, context_tokens: int = 256) -> Decoder:
    checkpoint = open_checkpoint(folder, str(folder))
    shape = checkpoint.architecture
    reader = TensorReader(checkpoint.weights(), torch.float32, CPU)
    weights = read_decoder_weights(shape, reader, lambda share: None)
    return Decoder(shape, checkpoint.config, weights, context_tokens)


def random_tokens(count: int, seed: int = 1) -> list[int]:
    return torch.randint(0, 500, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def logits_of(decoder: Decoder, token_ids: list[int], start: int = 0, on: KVWorkspace | None = None) -> torch.Tensor:
    """Logits [tokens, vocabulary] after each of these tokens, in a workspace that holds those before them."""
    return decoder.logits(decoder.hidden([Chunk(token_ids, start, on or decoder.new_workspace())]))


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, config = CONFIGS[name]
    folder = write_checkpoint(tmp_path, kind, **config)
    theirs = getattr(transformers, f"{kind}ForCausalLM").from_pretrained(folder, dtype=torch.float32)
    token_ids = random_tokens(150)
    with torch.no_grad():
        expected = theirs(torch.tensor([token_ids])).logits[0]

    decoder = load_decoder(folder)
    torch.testing.assert_close(logits_of(decoder, token_ids), expected, atol=EPSILON, rtol=EPSILON)

    workspace = decoder.new_workspace()
    for start, stop in ((0, 64), (64, 65), (65, 66), (66, 140), (140, 150)):
        logits = logits_of(decoder, token_ids[start:stop], start, workspace)
        torch.testing.assert_close(logits, expected[start:stop], atol=EPSILON, rtol=EPSILON)


@pytest.mark.parametrize("name", ["llama_gqa", "llama_mha", "qwen3"])
def test_sequences_share_a_forward_without_seeing_each_other(name: str, tmp_path: Path) -> None:
    kind, config = CONFIGS[name]
    decoder = load_decoder(write_checkpoint(tmp_path, kind, **config))
    sequences = [random_tokens(count, seed) for seed, count in enumerate((90, 30, 61, 5))]
    alone = [logits_of(decoder, token_ids) for token_ids in sequences]
    workspaces = [decoder.new_workspace() for _ in sequences]
    done = [0] * len(sequences)
    for steps in ((40, 30, 1, 2), (1, 0, 57, 1), (49, 0, 3, 2)):
        parts = [
            (number, Chunk(token_ids[start : start + count], start, workspace))
            for number, (token_ids, start, count, workspace) in enumerate(zip(sequences, done, steps, workspaces, strict=True))
            if count
        ]
        hidden = decoder.hidden([chunk for _, chunk in parts])
        expected = torch.cat([alone[number][chunk.start : chunk.stop] for number, chunk in parts])
        torch.testing.assert_close(decoder.logits(hidden), expected, atol=EPSILON, rtol=EPSILON)
        done = [start + count for start, count in zip(done, steps, strict=True)]
    assert done == [90, 30, 61, 5]


def test_each_chunk_gets_the_choices_it_wants(tiny_checkpoint: Path) -> None:
    decoder = load_decoder(tiny_checkpoint)
    first, second, third = random_tokens(20, 1), random_tokens(9, 2), random_tokens(12, 3)
    allowed = np.array([3, 77, 400])
    chunks = [
        Chunk(first, 0, decoder.new_workspace(), wanted=3),
        Chunk(second, 0, decoder.new_workspace()),
        Chunk(third, 0, decoder.new_workspace(), wanted=1, allowed=allowed),
    ]
    three, none, constrained = decoder.forward(chunks)
    expected = logits_of(decoder, first)[-3:].log_softmax(-1)
    assert [choice.token_id for choice in three] == expected.argmax(-1).tolist()
    assert [choice.logprob for choice in three] == pytest.approx(expected.amax(-1).tolist(), abs=1e-4)
    assert none == ()
    among = logits_of(decoder, third)[-1, allowed].log_softmax(-1)
    assert [choice.token_id for choice in constrained] == [int(allowed[among.argmax()])]
    assert constrained[0].logprob == pytest.approx(float(among.max()), abs=1e-4)


@pytest.mark.parametrize("name", ["llama_theta", "llama_linear", "llama_llama3", "llama_yarn"])
def test_rope_settings_as_older_checkpoints_have_them(name: str, tmp_path: Path) -> None:
    kind, config = CONFIGS[name]
    folder = write_checkpoint(tmp_path, kind, **config)
    token_ids = random_tokens(30)
    new = load_decoder(folder)
    expected = logits_of(new, token_ids)
    rope = dict(config["rope_parameters"])
    theta = rope.pop("rope_theta")
    edit_config(folder, rope_parameters=None, rope_theta=theta, rope_scaling=None if len(rope) == 1 else rope)
    old = load_decoder(folder)
    assert torch.equal(logits_of(old, token_ids), expected)


def test_what_stood_behind_the_crop_is_not_seen(tiny_checkpoint: Path) -> None:
    decoder = load_decoder(tiny_checkpoint)
    token_ids = random_tokens(40)
    workspace = decoder.new_workspace()
    cold = logits_of(decoder, token_ids, 0, workspace)
    logits_of(decoder, random_tokens(80)[40:], 20, workspace)
    again = logits_of(decoder, token_ids[20:], 20, workspace)
    torch.testing.assert_close(again, cold[20:], atol=EPSILON, rtol=EPSILON)


def test_forward_beyond_the_workspace_is_refused(tiny_checkpoint: Path) -> None:
    decoder = load_decoder(tiny_checkpoint, context_tokens=32)
    with pytest.raises(AssertionError, match=r"tokens \[30, 40\) exceed the context of 32"):
        logits_of(decoder, random_tokens(10), 30)
