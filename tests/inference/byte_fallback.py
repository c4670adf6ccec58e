"""Makes small BPE tokenizers with byte fallback, in the forms that SentencePiece's are converted to."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from tests.inference.tiny import training_text

BYTE_TOKENS = [f"<0x{value:02X}>" for value in range(256)]
TO_SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FROM_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
FORMS: dict[str, dict[str, object]] = {
    "llama": {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, FROM_SPACE]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP]},
    },
    "gemma": {
        "normalizer": FROM_SPACE,
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "decoder": {"type": "Sequence", "decoders": [TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]},
    },
    "metaspace": {
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
        "decoder": {"type": "Sequence", "decoders": [TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP]},
    },
}


def write_fallback_tokenizer(path: Path, form: str, markers: tuple[str, ...], vocabulary_size: int = 900) -> None:
    """A BPE with byte fallback, trained on recorded code; newlines and most of Unicode fall back."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", behavior="removed"), pre_tokenizers.Metaspace(prepend_scheme="never", split=True)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size, special_tokens=["<unk>", *BYTE_TOKENS], show_progress=False, limit_alphabet=100
    )
    tokenizer.train_from_iterator(training_text().splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    definition = json.loads(tokenizer.to_str())
    definition["added_tokens"] = [token for token in definition["added_tokens"] if token["content"] not in set(BYTE_TOKENS)]
    path.write_text(json.dumps({**definition, **FORMS[form]}))
