r"""Knows the patterns that split text before BPE, by their names in GGUF files (`tokenizer.ggml.pre`).

The patterns are those of the models' own tokenizers; each splits the pieces that the one before it left.
"""

from __future__ import annotations

from dataclasses import dataclass

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
