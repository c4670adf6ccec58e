"""Writes the tokenizer of a GGUF file as a folder with a tokenizer.json, some of its reserved tokens as FIM markers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gguf import GGUFReader, TokenType

DIGITS_THEN_BYTES = [
    {"type": "Digits", "individual_digits": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
]
"""The pre-tokenizer that llama.cpp calls `smollm`."""


def write_tokenizer(gguf: Path, folder: Path, markers: Mapping[int, str]) -> None:
    """`markers` renames reserved tokens by their ids: engines receive ids, so the names are ours to choose."""
    reader = GGUFReader(gguf)
    assert _value(reader, "tokenizer.ggml.pre") == "smollm"
    tokens: list[str] = _value(reader, "tokenizer.ggml.tokens")
    types: list[int] = _value(reader, "tokenizer.ggml.token_type")
    tokens = [markers.get(index, token) for index, token in enumerate(tokens)]
    merges = [tuple(merge.split(" ")) for merge in _value(reader, "tokenizer.ggml.merges")]
    special = [index for index, kind in enumerate(types) if kind != TokenType.NORMAL]
    definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(index, tokens[index]) for index in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": DIGITS_THEN_BYTES},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {token: index for index, token in enumerate(tokens)}, "merges": merges},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")


def _value(reader: GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    assert field is not None, name
    return field.contents()


def _added(index: int, token: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": token, "special": True, **flags}
