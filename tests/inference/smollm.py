"""A small Llama with SmolLM's kind of tokenizer, which has midfill's FIM markers as a base for training."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<repo_name>", "<filename>")
TEXT = "def f(x):\n    return x + 12345  # naïve\n\n\nclass A:\n\tpass\n"


def write_smollm(folder: Path) -> Path:
    """Write the model to the folder, which is returned."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*SPECIAL, "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT * 3], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    model = LlamaForCausalLM(config)
    torch.nn.Module.to(model, torch.float32)
    model.save_pretrained(folder)
    return folder
