"""The FIM formats: one record per model family, recognised from the tokens that its tokenizer knows."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from protocol.errors import BadInput, BadModel

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class FIMFormat:
    """How one family marks the parts of a FIM prompt. An empty string is a marker that the family does not have."""

    name: str
    prefix: str
    suffix: str
    middle: str  # Codestral goes on from the prefix, with no marker between
    end: tuple[str, ...]  # a suggestion ends where the model chooses one of them
    begin: str = ""  # stands before everything else
    file_separator: str = ""  # stands before the path of a context chunk
    repository: str = ""  # stands before a repository's name in training; prompts name none
    suffix_first: bool = False  # the order that the family was trained on
    lead: str = ""  # text that training put before every prefix
    told_by: tuple[str, ...] = ()  # tokens that tell this family from others with the same markers
    named: str = ""  # what the model is called, where no token tells it from others
    trained_on_fragments: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """The markers of the parts of a prompt."""
        named = (self.prefix, self.suffix, self.middle, self.begin, self.file_separator, self.repository)
        return tuple(marker for marker in named if marker)

    @property
    def required_tokens(self) -> tuple[str, ...]:
        """Every token that a tokenizer of this family has."""
        return tuple(dict.fromkeys((*self.markers, *self.end, *self.told_by)))


# github.com/QwenLM/Qwen3-Coder, README (Qwen2.5-Coder's and Qwen3-Coder's): prompts of a file, of a repository, stops.
QWEN_CODER = FIMFormat(
    name="qwen-coder",
    prefix="<|fim_prefix|>",
    suffix="<|fim_suffix|>",
    middle="<|fim_middle|>",
    end=("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|im_start|>", "<|im_end|>"),
    file_separator="<|file_sep|>",
    repository="<|repo_name|>",
)

# ai.google.dev/gemma/docs/codegemma/prompt-structure; <bos> and <eos> are Gemma's own.
CODEGEMMA = FIMFormat(
    name="codegemma",
    prefix="<|fim_prefix|>",
    suffix="<|fim_suffix|>",
    middle="<|fim_middle|>",
    end=("<|file_separator|>", "<eos>"),
    begin="<bos>",
    file_separator="<|file_separator|>",
)

# huggingface.co/ibm-granite/granite-4.0-micro, tokenizer_config.json; Continue's AutocompleteTemplate.ts (granite4).
GRANITE = FIMFormat(
    name="granite",
    prefix="<|fim_prefix|>",
    suffix="<|fim_suffix|>",
    middle="<|fim_middle|>",
    end=("<|end_of_text|>", "<|fim_pad|>"),
    file_separator="<|filename|>",
    repository="<|reponame|>",
)

# inference/training/vocabulary.py
MIDFILL = FIMFormat(
    name="midfill",
    prefix="<|fim_prefix|>",
    suffix="<|fim_suffix|>",
    middle="<|fim_middle|>",
    end=("<|endoftext|>",),
    trained_on_fragments=True,
)

# huggingface.co/bigcode/starcoder2-3b, special_tokens_map.json; arXiv 2402.19173, section 5.1: files in repositories.
STARCODER2 = FIMFormat(
    name="starcoder2",
    prefix="<fim_prefix>",
    suffix="<fim_suffix>",
    middle="<fim_middle>",
    end=("<|endoftext|>", "<file_sep>", "<fim_pad>"),
    file_separator="<file_sep>",
    repository="<repo_name>",
)

# huggingface.co/JetBrains/Mellum-4b-base, model card (suffix first, <filename> before each file); arXiv 2510.05788 says
# SPM too. Its special tokens are StarCoder's.
MELLUM = FIMFormat(
    name="mellum",
    prefix="<fim_prefix>",
    suffix="<fim_suffix>",
    middle="<fim_middle>",
    end=("<|endoftext|>", "<fim_pad>", "<filename>"),
    file_separator="<filename>",
    repository="<reponame>",
    suffix_first=True,
    named="mellum",
)

# huggingface.co/ibm-granite/granite-20b-code-instruct-accelerator, special_tokens_map.json: StarCoder's tokens.
GRANITE_CODE = FIMFormat(
    name="granite-code",
    prefix="<fim_prefix>",
    suffix="<fim_suffix>",
    middle="<fim_middle>",
    end=("<|endoftext|>", "<fim_pad>", "<filename>"),
    file_separator="<filename>",
    repository="<reponame>",
    named="granite",
)

# huggingface.co/bigcode/starcoderbase-7b, special_tokens_map.json; arXiv 2305.06161, section 5.1.
STARCODER = FIMFormat(
    name="starcoder",
    prefix="<fim_prefix>",
    suffix="<fim_suffix>",
    middle="<fim_middle>",
    end=("<|endoftext|>", "<fim_pad>", "<filename>"),
    file_separator="<filename>",
    repository="<reponame>",
)

# github.com/deepseek-ai/DeepSeek-Coder, README, "Code Insertion"; its repository prompts name files in comments.
DEEPSEEK_CODER = FIMFormat(
    name="deepseek-coder",
    prefix="<｜fim▁begin｜>",
    suffix="<｜fim▁hole｜>",
    middle="<｜fim▁end｜>",
    end=("<｜end▁of▁sentence｜>", "<|EOT|>"),
    begin="<｜begin▁of▁sentence｜>",
)

# huggingface.co/ByteDance-Seed/Seed-Coder-8B-Base, model card, "Fill-in-the-Middle example": suffix first.
SEED_CODER = FIMFormat(
    name="seed-coder",
    prefix="<[fim-prefix]>",
    suffix="<[fim-suffix]>",
    middle="<[fim-middle]>",
    end=("<[end▁of▁sentence]>",),
    begin="<[begin▁of▁sentence]>",
    suffix_first=True,
)

# github.com/meta-llama/codellama, llama/generation.py, infilling_prompt_tokens: the prefix with SentencePiece's leading
# space, suffix and middle without; ▁<EOT> ends the middle.
CODELLAMA = FIMFormat(
    name="codellama",
    prefix="▁<PRE>",
    suffix="▁<SUF>",
    middle="▁<MID>",
    end=("▁<EOT>", "</s>"),
    begin="<s>",
    lead=" ",
)

# github.com/mistralai/mistral-common, tokens/tokenizers/instruct.py, InstructTokenizerV2.encode_fim: [SUFFIX] suffix
# [PREFIX] prefix. [MIDDLE] is in the vocabulary and in no prompt. The cookbook's concept-deep-dive/tokenization shows
# "[PREFIX] prefix" with SentencePiece's leading space.
CODESTRAL = FIMFormat(
    name="codestral",
    prefix="[PREFIX]",
    suffix="[SUFFIX]",
    middle="",
    end=("</s>",),
    begin="<s>",
    suffix_first=True,
    lead=" ",
)

FORMATS = (
    QWEN_CODER, CODEGEMMA, GRANITE, MIDFILL, STARCODER2, MELLUM, GRANITE_CODE, STARCODER, DEEPSEEK_CODER, SEED_CODER,
    CODELLAMA, CODESTRAL,
)  # fmt: skip
"""The more particular first."""


def choose_format(wanted: str, known_tokens: Container[str], where: str) -> FIMFormat:
    """The format called `wanted`, or with "auto" the one that a tokenizer with `known_tokens` belongs to.

    BadInput where there is no such format, BadModel, naming `where`, where the tokenizer lacks its tokens.
    """
    if wanted == AUTO:
        return recognise_format(known_tokens, where)
    for fim in FORMATS:
        if fim.name == wanted:
            missing = [token for token in fim.required_tokens if token not in known_tokens]
            if missing:
                raise BadModel(f"{where} is no tokenizer for the FIM format {wanted!r}: it lacks {', '.join(missing)}")
            return fim
    raise BadInput(f"no FIM format {wanted!r}: it is {AUTO}, {', '.join(fim.name for fim in FORMATS)}")


def recognise_format(known_tokens: Container[str], where: str) -> FIMFormat:
    """The format whose tokens are all in `known_tokens`; BadModel, naming `where`, if there is none.

    Where families share all their tokens, the name of the model, which is a part of `where`, tells them apart.
    """
    for fim in FORMATS:
        if fim.named in where.lower() and all(token in known_tokens for token in fim.required_tokens):
            return fim
    looked_for = ", ".join(dict.fromkeys(fim.prefix for fim in FORMATS))
    raise BadModel(
        f"{where} has no fill-in-the-middle markers that midfill knows (looked for {looked_for}): "
        "choose a code model that was trained for fill-in-the-middle, such as Qwen/Qwen2.5-Coder-1.5B"
    )
