"""The FIM formats: one record per model family, recognized by the tokens of its tokenizer."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import partial

from protocol.errors import BadInput, BadModel

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class FIMFormat:
    """The markers of one family's FIM prompt. An empty string stands for a marker that the family lacks."""

    name: str
    prefix: str
    suffix: str
    middle: str = ""  # empty for Codestral, which continues the prefix directly
    end: tuple[str, ...]  # these and all other special tokens end a completion
    begin: str = ""  # begins the prompt
    file_separator: str = ""  # precedes the path of a snippet
    repository: str = ""  # precedes a repository's name in training; prompts contain none
    suffix_first: bool = False  # the layout that the family was trained on
    lead: str = ""  # text before every prefix in training
    named: str = ""  # part of the model's name, if no token distinguishes it
    fragments_suffice: bool = False  # the model continues partial words as well as with token healing

    @property
    def markers(self) -> tuple[str, ...]:
        """The markers of the parts of a prompt."""
        named = (self.prefix, self.suffix, self.middle, self.begin, self.file_separator, self.repository)
        return tuple(marker for marker in named if marker)

    @property
    def required_tokens(self) -> tuple[str, ...]:
        """Every token that a tokenizer of this family has."""
        return tuple(dict.fromkeys((*self.markers, *self.end)))


_with_pipes = partial(FIMFormat, prefix="<|fim_prefix|>", suffix="<|fim_suffix|>", middle="<|fim_middle|>")
_as_starcoder = partial(
    FIMFormat,
    prefix="<fim_prefix>",
    suffix="<fim_suffix>",
    middle="<fim_middle>",
    end=("<|endoftext|>", "<fim_pad>", "<filename>"),
    file_separator="<filename>",
    repository="<reponame>",
)

_RECORDS = (
    # github.com/QwenLM/Qwen3-Coder, README, as of Qwen2.5-Coder: prompts of a file and of a repository, and the stops.
    # As of Qwen3-Coder it shows the same prompt, in a turn of a chat with its instruct model.
    _with_pipes(
        name="qwen-coder",
        end=("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|im_start|>", "<|im_end|>"),
        file_separator="<|file_sep|>",
        repository="<|repo_name|>",
    ),
    # ai.google.dev/gemma/docs/codegemma/prompt-structure: the four tokens, and that a file separator or <eos> ends the
    # answer. <bos> and <eos> are Gemma's own.
    _with_pipes(
        name="codegemma",
        end=("<|file_separator|>", "<eos>"),
        begin="<bos>",
        file_separator="<|file_separator|>",
    ),
    # huggingface.co/ibm-granite/granite-4.0-micro, tokenizer_config.json. IBM's documentation of Granite 4.0 names FIM
    # among its capabilities, and shows no prompt with several files. We place <|filename|> as in Granite code, which
    # has the same tokens without pipes.
    _with_pipes(
        name="granite",
        end=("<|end_of_text|>", "<|fim_pad|>"),
        file_separator="<|filename|>",
        repository="<|reponame|>",
    ),
    # lab/midfill_lab/training/from_gguf.py: SmolLM2, which knows <filename> from its pretraining and no FIM
    # markers, with these in the place of reserved tokens.
    _with_pipes(name="smollm2", end=("<|endoftext|>",), file_separator="<filename>", repository="<repo_name>"),
    # lab/midfill_lab/training/vocabulary.py
    _with_pipes(name="midfill", end=("<|endoftext|>",), fragments_suffice=True),
    # huggingface.co/bigcode/starcoder2-3b, special_tokens_map.json; arXiv 2402.19173, section 5.1, for files of a
    # repository.
    _as_starcoder(
        name="starcoder2",
        end=("<|endoftext|>", "<file_sep>", "<fim_pad>"),
        file_separator="<file_sep>",
        repository="<repo_name>",
    ),
    # huggingface.co/JetBrains/Mellum-4b-base, model card, "Fill in the middle with additional files as context
    # generation": "<filename>path" before each file, then suffix, prefix, middle; arXiv 2510.05788 says SPM, too.
    _as_starcoder(name="mellum", suffix_first=True, named="mellum"),
    # huggingface.co/ibm-granite/granite-20b-code-instruct-accelerator, special_tokens_map.json.
    _as_starcoder(name="granite-code", named="granite"),
    # huggingface.co/bigcode/starcoderbase-7b, special_tokens_map.json; arXiv 2305.06161, section 5.1: "<reponame>name
    # <filename>path" before a file.
    _as_starcoder(name="starcoder"),
    # github.com/deepseek-ai/DeepSeek-Coder, README, "How to Use": 2) Code Insertion; in 4) Repository Level Code
    # Completion, comments name the files.
    FIMFormat(
        name="deepseek-coder",
        prefix="<｜fim▁begin｜>",
        suffix="<｜fim▁hole｜>",
        middle="<｜fim▁end｜>",
        end=("<｜end▁of▁sentence｜>", "<|EOT|>"),
        begin="<｜begin▁of▁sentence｜>",
    ),
    # arXiv 2506.03524 (Seed-Coder), section 2.2, for the order; begin and end from the tokenizer_config.json of
    # huggingface.co/ByteDance-Seed/Seed-Coder-8B-Base.
    FIMFormat(
        name="seed-coder",
        prefix="<[fim-prefix]>",
        suffix="<[fim-suffix]>",
        middle="<[fim-middle]>",
        end=("<[end▁of▁sentence]>",),
        begin="<[begin▁of▁sentence]>",
        suffix_first=True,
    ),
    # github.com/meta-llama/codellama, llama/generation.py, infilling_prompt_tokens: the prefix with SentencePiece's
    # leading space, suffix and middle without; ▁<EOT> ends the middle.
    FIMFormat(
        name="codellama",
        prefix="▁<PRE>",
        suffix="▁<SUF>",
        middle="▁<MID>",
        end=("▁<EOT>", "</s>"),
        begin="<s>",
        lead=" ",
    ),
    # github.com/mistralai/mistral-common, tokens/tokenizers/instruct.py, InstructTokenizerV2.encode_fim: <s> [SUFFIX]
    # suffix [PREFIX] prefix; SentencePiece's leading space is before the prefix alone. [MIDDLE] is in no prompt.
    FIMFormat(
        name="codestral",
        prefix="[PREFIX]",
        suffix="[SUFFIX]",
        end=("</s>",),
        begin="<s>",
        suffix_first=True,
        lead=" ",
    ),
)
FORMATS = {fim.name: fim for fim in _RECORDS}
"""Every format by its name, the more specific first."""


def choose_format(
    wanted: str, known_tokens: Container[str], where: str, fallback: FIMFormat | None = None
) -> FIMFormat:
    """The format named `wanted`, or with "auto" the one of a tokenizer with `known_tokens`, or else `fallback`.

    Raises BadInput for an unknown format, BadModel, naming `where`, if the tokenizer lacks its tokens.
    """
    if wanted == AUTO:
        return recognise_format(known_tokens, where, fallback)
    if wanted not in FORMATS:
        raise BadInput(f"unknown FIM format {wanted!r}: choose {AUTO}, {', '.join(FORMATS)}")
    fim = FORMATS[wanted]
    missing = [token for token in fim.required_tokens if token not in known_tokens]
    if missing:
        raise BadModel(f"{where}: the tokenizer lacks {', '.join(missing)}, which the FIM format {wanted!r} needs")
    return fim


def recognise_format(known_tokens: Container[str], where: str, fallback: FIMFormat | None = None) -> FIMFormat:
    """The format whose tokens are all in `known_tokens`, or else `fallback`; BadModel, naming `where`, if None.

    Families with the same tokens are distinguished by the model's name, a part of `where`.
    """
    for fim in FORMATS.values():
        if fim.named in where.lower() and all(token in known_tokens for token in fim.required_tokens):
            return fim
    if fallback is not None:
        return fallback
    looked_for = ", ".join(dict.fromkeys(fim.prefix for fim in FORMATS.values()))
    raise BadModel(
        f"{where} has no fill-in-the-middle markers that midfill knows (looked for {looked_for}): "
        "choose a code model that was trained for fill-in-the-middle, such as Qwen/Qwen2.5-Coder-1.5B"
    )
