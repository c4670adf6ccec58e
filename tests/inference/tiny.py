"""Makes tiny checkpoints with random weights."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

QWEN_SPLIT = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARKERS = ("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>")
ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "rustcode-3000-3400.json.gz"

TINY_LLAMA = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def training_text() -> str:
    """The text that vocabularies are trained on: one that no change of the code changes, since random models depend
    on it."""
    text: str = json.loads(gzip.decompress(RECORDED.read_bytes()))["startContent"]
    return text


def write_tokenizer(path: Path, vocabulary_size: int = 600, markers: tuple[str, ...] = MARKERS) -> int:
    """A byte-level BPE with Qwen's split pattern, trained on recorded code; its size."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(training_text().splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens([AddedToken(marker, special=True) for marker in markers])
    tokenizer.save(str(path))
    return tokenizer.get_vocab_size()


def write_checkpoint(folder: Path, kind: str = "Llama", markers: tuple[str, ...] = MARKERS, **config: object) -> Path:
    """A checkpoint of a random model, as transformers itself writes it."""
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = write_tokenizer(folder / "tokenizer.json", markers=markers)
    settings = {**TINY_LLAMA, "vocab_size": vocabulary, **config}
    torch.set_num_threads(1)  # threads of a model this small only wait for each other
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.02 if "embed" in name else 0.3
            offset = 1.0 if "norm" in name else 0.0
            parameter.copy_(offset + spread * torch.randn_like(parameter))
        model.lm_head.weight[_broken_tokens(folder / "tokenizer.json", markers)] = 0.0  # so that it generates readable text
    model.save_pretrained(folder)
    return folder


def _broken_tokens(tokenizer_file: Path, markers: tuple[str, ...]) -> list[int]:
    """Tokens that are only a part of a UTF-8 sequence, and the markers."""
    vocabulary = Tokenizer.from_file(str(tokenizer_file)).get_vocab()
    return [id_ for token, id_ in vocabulary.items() if not token.isascii() or token in markers]


def edit_config(folder: Path, **changes: object) -> None:
    """Change fields of a checkpoint's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
