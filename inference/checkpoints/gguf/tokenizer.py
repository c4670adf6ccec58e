"""Tokenizers of GGUF files: builds a tokenizer.json from the tokenizer fields and the name of the pre-tokenizer.

The patterns are those of the models' own tokenizers; each splits the pieces that the one before it left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from inference.checkpoints.gguf.metadata import GgufHeader
from inference.text.fim import FIMFormat
from protocol.errors import BadModel

UNNAMED = "default"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns to split by, in order; `keeps_words` takes a piece that is a token whole, whatever the merges are."""

    patterns: tuple[str, ...]
    keeps_words: bool = False


_DIGIT = r"\p{N}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _as_gpt4(digits: str, punctuation: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*") -> str:
    return rf"(?:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{punctuation}|{_SPACES}"


def _by_case(digits: str, contractions: str) -> str:
    """Words end where lower case is followed by upper case."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{lead}{_UPPER}*{_LOWER}+{contractions}|{lead}{_UPPER}+{_LOWER}*{contractions}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_PLAIN = PreTokenizer((_GPT2,))
_DIGITS_APART = PreTokenizer((_DIGIT, _GPT2))
_QWEN2 = PreTokenizer((_as_gpt4(_DIGIT),))
_LLAMA3 = (_as_gpt4(r"\p{N}{1,3}"),)
_GPT4O = PreTokenizer((_by_case(r"\p{N}{1,3}", f"(?:{_CONTRACTIONS})?"),))

_BY_NAME = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "mellum"), _PLAIN),
    **dict.fromkeys(("exaone4", "gigachat", "a.x-4.0"), _PLAIN),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS_APART),
    "mellum2": _DIGITS_APART,
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open"), _QWEN2),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "glm4"), PreTokenizer(_LLAMA3, True)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizer(_LLAMA3)),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O),
    "tekken": PreTokenizer((_by_case(_DIGIT, ""),), True),
    "seed-coder": PreTokenizer((_as_gpt4(_DIGIT, r" ?[^\s\p{L}\p{N}\r\n]+"),)),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", _DIGIT)),
    "deepseek-v3": PreTokenizer(
        (
            r"\p{N}{1,3}",
            "[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
        )
    ),
    UNNAMED: PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
}


def pre_tokenizer(name: str, where: str) -> PreTokenizer:
    """The pre-tokenizer of this name; BadModel, naming `where`, for one that midfill does not know."""
    if name not in _BY_NAME:
        known = ", ".join(sorted(_BY_NAME))
        raise BadModel(f"{where}: the pre-tokenizer {name!r} (tokenizer.ggml.pre) is none of those known: {known}")
    return _BY_NAME[name]


# The numbers of gguf.TokenType.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5

_MARKER_KEYS = {
    "prefix": ("fim_pre_token_id", "prefix_token_id"),
    "suffix": ("fim_suf_token_id", "suffix_token_id"),
    "middle": ("fim_mid_token_id", "middle_token_id"),
    "file_separator": ("fim_sep_token_id",),
    "repository": ("fim_rep_token_id",),
}
_END_KEYS = ("eos_token_id", "eot_token_id", "fim_pad_token_id")


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The tokens of a file and their types, of one length."""

    header: GgufHeader
    tokens: tuple[str, ...]
    types: tuple[int, ...]

    def id_of(self, key: str) -> int | None:
        """The token that a field names; None if the file has no such field."""
        id_ = self.header.metadata.get(f"tokenizer.ggml.{key}")
        if id_ is None:
            return None
        if not isinstance(id_, int) or isinstance(id_, bool) or not 0 <= id_ < len(self.tokens):
            raise BadModel(f"{self.header.path}: tokenizer.ggml.{key} is {id_!r}, which is no token of the vocabulary")
        return id_

    def token_of(self, *keys: str) -> str:
        """The token that the first of `keys` in the file names; empty if it has none of them."""
        ids = (id_ for key in keys if (id_ := self.id_of(key)) is not None)
        id_ = next(ids, None)
        return "" if id_ is None else self.tokens[id_]


def tokenizer_definition(header: GgufHeader) -> dict[str, Any]:
    """The tokenizer as a parsed tokenizer.json; BadModel, with the file and the value, if it is unsupported."""
    kind = header.metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise BadModel(
            f"{header.path}: its tokenizer is of the kind {kind!r} (tokenizer.ggml.model): midfill reads 'gpt2' "
            "(byte-level BPE) and 'llama' (SentencePiece)"
        )
    vocabulary = _vocabulary(header)
    definition = _byte_level(vocabulary) if kind == "gpt2" else _sentencepiece(vocabulary)
    return definition | {"added_tokens": list(_added_tokens(vocabulary))}


def marked_format(header: GgufHeader) -> FIMFormat | None:
    """The FIM format that the file's fields describe by token ids; None if they name no prefix, suffix and middle."""
    vocabulary = _vocabulary(header)
    markers: dict[str, Any] = {name: vocabulary.token_of(*keys) for name, keys in _MARKER_KEYS.items()}
    if not (markers["prefix"] and markers["suffix"] and markers["middle"]):
        return None
    ends = dict.fromkeys(token for key in _END_KEYS if (token := vocabulary.token_of(key)))
    begins = header.metadata.get("tokenizer.ggml.add_bos_token") is True
    begin = vocabulary.token_of("bos_token_id") if begins else ""
    return FIMFormat(name="gguf", end=tuple(ends), begin=begin, **markers)


def _vocabulary(header: GgufHeader) -> _Vocabulary:
    tokens = _strings(header, "tokens")
    if not tokens:
        raise BadModel(f"{header.path} has no tokenizer: tokenizer.ggml.tokens is missing or empty")
    types = header.metadata.get("tokenizer.ggml.token_type", (NORMAL,) * len(tokens))
    _check_length(header, "token_type", types, tokens)
    return _Vocabulary(header, tokens, types)


def _byte_level(vocabulary: _Vocabulary) -> dict[str, Any]:
    header = vocabulary.header
    split = pre_tokenizer(str(header.metadata.get("tokenizer.ggml.pre", UNNAMED)), str(header.path))
    steps = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in split.patterns
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    used = zip(vocabulary.tokens, vocabulary.types, strict=True)
    merges = list(_strings(header, "merges"))
    if not merges:
        raise BadModel(f"{header.path} has no tokenizer.ggml.merges: it is incomplete")
    return {
        "version": "1.0",
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, byte_level]},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: id_ for id_, (token, type_) in enumerate(used) if type_ != UNUSED},
            "merges": merges,
            "ignore_merges": split.keeps_words,
        },
    }


def _sentencepiece(vocabulary: _Vocabulary) -> dict[str, Any]:
    """By transformers' conversion, which derives the merges from the scores. Imports transformers."""
    from transformers.integrations.gguf import convert_gguf_tokenizer  # type: ignore[attr-defined] # it is lazy

    header = vocabulary.header
    scores: Any = header.metadata.get("tokenizer.ggml.scores")
    _check_length(header, "scores", scores, vocabulary.tokens)
    fields = {"tokenizer_type": "llama", "tokens": list(vocabulary.tokens), "scores": list(scores)}
    try:
        converted, _ = convert_gguf_tokenizer(header.architecture, fields)
        definition: dict[str, Any] = json.loads(converted.to_str())
    except Exception as error:  # the libraries raise various errors for a malformed vocabulary
        raise BadModel(f"{header.path}: its tokenizer is refused by transformers: {error}") from error
    return definition


def _added_tokens(vocabulary: _Vocabulary) -> Iterator[dict[str, Any]]:
    """Tokens that are matched before the text is split, as tokenizer.json lists them."""
    keys = (*chain.from_iterable(_MARKER_KEYS.values()), *_END_KEYS, "bos_token_id")
    named = {vocabulary.id_of(key) for key in keys}
    for id_, (token, type_) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        if type_ in (UNKNOWN, CONTROL, USER_DEFINED) or id_ in named:
            added: dict[str, Any] = {"id": id_, "content": token, "special": type_ != USER_DEFINED}
            yield added | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def _strings(header: GgufHeader, key: str) -> tuple[str, ...]:
    values = header.metadata.get(f"tokenizer.ggml.{key}", ())
    if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
        raise BadModel(f"{header.path}: tokenizer.ggml.{key} is not a list of strings")
    return values


def _check_length(header: GgufHeader, key: str, values: object, tokens: tuple[str, ...]) -> None:
    if not isinstance(values, tuple) or len(values) != len(tokens):
        raise BadModel(f"{header.path}: tokenizer.ggml.{key} does not have a number for each of {len(tokens)} tokens")
