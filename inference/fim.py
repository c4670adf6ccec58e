"""The FIM formats: one record per model family, recognised from the tokens that its tokenizer knows."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from protocol.errors import BadModel


@dataclass(frozen=True, slots=True)
class FIMFormat:
    """How one family marks the parts of a FIM prompt. An empty string is a marker that the family does not have."""

    name: str
    prefix: str
    suffix: str
    middle: str
    end: tuple[str, ...]  # a suggestion ends where the model chooses one of them
    begin: str = ""  # stands before everything else
    file_separator: str = ""  # stands before the path of a context chunk
    told_by: tuple[str, ...] = ()  # tokens that tell this family from others with the same markers
    trained_on_fragments: bool = False

    @property
    def required_tokens(self) -> tuple[str, ...]:
        """Every token that a tokenizer of this family has."""
        named = (self.prefix, self.suffix, self.middle, self.begin, self.file_separator)
        return tuple(token for token in (*named, *self.end, *self.told_by) if token)


QWEN_CODER = FIMFormat(
    name="qwen-coder",
    prefix="<|fim_prefix|>",
    suffix="<|fim_suffix|>",
    middle="<|fim_middle|>",
    end=("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
    file_separator="<|file_sep|>",
    told_by=("<|im_start|>",),
)

MIDFILL = FIMFormat(
    name="midfill",
    prefix="<|fim_prefix|>",
    suffix="<|fim_suffix|>",
    middle="<|fim_middle|>",
    end=("<|endoftext|>",),
    trained_on_fragments=True,
)

STARCODER2 = FIMFormat(
    name="starcoder2",
    prefix="<fim_prefix>",
    suffix="<fim_suffix>",
    middle="<fim_middle>",
    end=("<|endoftext|>", "<file_sep>"),
    file_separator="<file_sep>",
)

DEEPSEEK_CODER = FIMFormat(
    name="deepseek-coder",
    prefix="<｜fim▁begin｜>",
    suffix="<｜fim▁hole｜>",
    middle="<｜fim▁end｜>",
    end=("<｜end▁of▁sentence｜>", "<|EOT|>"),
    begin="<｜begin▁of▁sentence｜>",
)

FORMATS = (QWEN_CODER, MIDFILL, STARCODER2, DEEPSEEK_CODER)  # the more particular first


def recognise_format(known_tokens: Container[str], where: str) -> FIMFormat:
    """The format whose tokens are all in `known_tokens`; BadModel, naming `where`, if there is none."""
    for fim in FORMATS:
        if all(token in known_tokens for token in fim.required_tokens):
            return fim
    looked_for = ", ".join(dict.fromkeys(fim.prefix for fim in FORMATS))
    raise BadModel(
        f"{where} has no fill-in-the-middle markers that midfill knows (looked for {looked_for}): "
        "choose a code model that was trained for fill-in-the-middle, such as Qwen/Qwen2.5-Coder-1.5B"
    )
