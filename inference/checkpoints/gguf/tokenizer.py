"""Tokenizers of GGUF files: builds a tokenizer.json from the tokenizer fields and the name of the pre-tokenizer.

The patterns are those of the models' own tokenizers; each splits the pieces that the one before it left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from inference.checkpoints.gguf.metadata import GgufHeader, midfill_notes
from inference.text.fim import AUTO, FIMFormat
from inference.text.token_ids import SPACE_MARK
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadModel, bad_model
from protocol.installation import needing_torch

UNNAMED = "default"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns to split by, in order; `keeps_words` takes a piece that is a token whole, whatever the merges are."""

    patterns: tuple[str, ...]
    keeps_words: bool = False


_DIGIT = r"\p{N}"
_LINES = r"[^\n]+|[\n]+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _as_gpt4(digits: str, punctuation: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*", letter: str = r"\p{L}") -> str:
    return rf"(?:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?{letter}+|{digits}|{punctuation}|{_SPACES}"


def _by_case(digits: str, contractions: str) -> str:
    """Words end where lower case is followed by upper case."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{lead}{_UPPER}*{_LOWER}+{contractions}|{lead}{_UPPER}+{_LOWER}*{contractions}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_CASED = (  # letters that have a case, as of an older Unicode and without mathematical ones
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    "Ὗ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-"
    "Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_PLAIN = PreTokenizer((_GPT2,))
_DIGITS_APART = PreTokenizer((_DIGIT, _GPT2))
_QWEN2 = PreTokenizer((_as_gpt4(_DIGIT),))
_LLAMA3 = (_as_gpt4(r"\p{N}{1,3}"),)
_GPT4O = PreTokenizer((_by_case(r"\p{N}{1,3}", f"(?:{_CONTRACTIONS})?"),))

_LLAMA3_WORDS = PreTokenizer(_LLAMA3, True)
_DEEPSEEK3 = PreTokenizer(
    (
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
    )
)
_LING = rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{_DIGIT}"

PRE_TOKENIZERS = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "mellum"), _PLAIN),
    **dict.fromkeys(("exaone4", "gigachat", "a.x-4.0"), _PLAIN),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS_APART),
    "mellum2": _DIGITS_APART,
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open"), _QWEN2),
    **dict.fromkeys(("grok-2", "f2llmv2"), _QWEN2),
    "qwen35": PreTokenizer((_as_gpt4(_DIGIT, r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", r"[\p{L}\p{M}]"),)),
    "laguna": PreTokenizer((_LINES, *_QWEN2.patterns)),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2"), _LLAMA3_WORDS),
    **dict.fromkeys(("glm4", "glm5", "midm-2.0"), _LLAMA3_WORDS),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _as_gpt4(r"\p{N}+")), True),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizer(_LLAMA3)),
    **dict.fromkeys(("gpt-4o", "llama4", "minimax-m2", "kanana2", "talkie"), _GPT4O),
    **dict.fromkeys(
        ("bailingmoe", "bailingmoe2", "llada-moe"),
        PreTokenizer((rf"{_LING}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",)),
    ),
    "tekken": PreTokenizer((_by_case(_DIGIT, ""),), True),
    "seed-coder": PreTokenizer((_as_gpt4(_DIGIT, r" ?[^\s\p{L}\p{N}\r\n]+"),)),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", _DIGIT)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _DEEPSEEK3),
    "deepseek-llm": PreTokenizer(
        (r"[\r\n]", rf"\s?[{_CASED}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}+")
    ),
    UNNAMED: PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
}


def pre_tokenizer(name: str, where: str) -> PreTokenizer:
    """The pre-tokenizer of this name; BadModel, naming `where`, for one that midfill does not know."""
    if name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise BadModel(f"{where}: the pre-tokenizer {name!r} (tokenizer.ggml.pre) is none of those known: {known}")
    return PRE_TOKENIZERS[name]


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


def gguf_tokenizer(header: GgufHeader, fim_format: str = AUTO) -> TextTokenizer:
    """The tokenizer of a file of any architecture; BadModel if it cannot be used for fill-in-the-middle."""
    notes = midfill_notes(header)
    with bad_model(f"{header.path} cannot be read as a tokenizer"):
        return TextTokenizer(
            tokenizer_definition(header),
            f"{header.path} ({header.metadata.get('general.name', 'without a name')})",
            notes.get("fim_format", AUTO) if fim_format == AUTO else fim_format,
            fallback=marked_format(header),
            fragments_suffice=notes.get("fragments_suffice"),
        )


def tokenizer_definition(header: GgufHeader) -> dict[str, Any]:
    """The tokenizer as a parsed tokenizer.json; BadModel, with the file and the value, if it is unsupported."""
    kind = header.metadata.get("tokenizer.ggml.model")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise BadModel(
            f"{header.path}: its tokenizer is of the kind {kind!r} (tokenizer.ggml.model): midfill reads 'gpt2' "
            "(byte-level BPE), 'llama' (SentencePiece) and 'gemma4'"
        )
    vocabulary = _vocabulary(header)
    return _KINDS[kind](vocabulary) | {"added_tokens": list(_added_tokens(vocabulary))}


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
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False} for pattern in split.patterns
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, byte_level]},
        "decoder": byte_level,
        "model": _merging(vocabulary) | {"ignore_merges": split.keeps_words},
    }


def _gemma4(vocabulary: _Vocabulary) -> dict[str, Any]:
    """Merges over whole lines, in which a mark stands for each space; bytes that no token spells have their own."""
    return {
        "version": "1.0",
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": _LINES}, "behavior": "Isolated", "invert": False},
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": _merging(vocabulary) | {"byte_fallback": True},
    }


def _merging(vocabulary: _Vocabulary) -> dict[str, Any]:
    header = vocabulary.header
    used = zip(vocabulary.tokens, vocabulary.types, strict=True)
    merges = [[merge[:at], merge[at + 1 :]] for merge in _strings(header, "merges") if (at := merge.find(" ", 1)) > 0]
    if not merges:
        raise BadModel(f"{header.path} has no tokenizer.ggml.merges: it is incomplete")
    vocab = {token: id_ for id_, (token, type_) in enumerate(used) if type_ != UNUSED}
    return {"type": "BPE", "vocab": vocab, "merges": merges}


def _sentencepiece(vocabulary: _Vocabulary) -> dict[str, Any]:
    """By transformers' conversion, which derives the merges from the scores. Imports transformers."""
    header = vocabulary.header
    with needing_torch(header.path):
        from transformers.integrations.gguf import convert_gguf_tokenizer  # type: ignore[attr-defined] # it is lazy

    scores: Any = header.metadata.get("tokenizer.ggml.scores")
    _check_length(header, "scores", scores, vocabulary.tokens)
    fields = {"tokenizer_type": "llama", "tokens": list(vocabulary.tokens), "scores": list(scores)}
    try:
        converted, _ = convert_gguf_tokenizer(header.architecture, fields)
        definition: dict[str, Any] = json.loads(converted.to_str())
    except Exception as error:  # the libraries raise various errors for a malformed vocabulary
        raise BadModel(f"{header.path}: its tokenizer is refused by transformers: {error}") from error
    return definition


_KINDS: dict[str, Callable[[_Vocabulary], dict[str, Any]]] = {"gpt2": _byte_level, "llama": _sentencepiece, "gemma4": _gemma4}


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
    if not isinstance(values, tuple) or not {str} >= set(map(type, values)):  # of 100,000 tokens
        raise BadModel(f"{header.path}: tokenizer.ggml.{key} is not a list of strings")
    return values


def _check_length(header: GgufHeader, key: str, values: object, tokens: tuple[str, ...]) -> None:
    if not isinstance(values, tuple) or len(values) != len(tokens):
        raise BadModel(f"{header.path}: tokenizer.ggml.{key} does not have a number for each of {len(tokens)} tokens")
