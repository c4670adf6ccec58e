"""FIM formats: one record per model family, and the reader of prompts that a client has rendered with a family's
markers.

A client that renders a model's prompt itself sends one text with the markers in it, in the order of PSM or SPM.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from inference.text.token_ids import SPACE_MARK
from protocol.errors import BadInput, BadModel
from protocol.messages import MAX_SNIPPETS, Snippet

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class FIMFormat:
    """The markers of one family's FIM prompt. An empty string stands for a marker that the family lacks."""

    name: str
    prefix: str
    suffix: str
    middle: str = ""  # empty for Codestral, which continues the prefix directly
    end: tuple[str, ...]  # these and all other special tokens end a completion
    end_ids: tuple[int, ...] = ()  # as `end`, of tokens without a name
    begin: str = ""  # begins the prompt
    file_separator: str = ""  # precedes the path of a snippet
    repository: str = ""  # precedes a repository's name in training; prompts contain none
    suffix_first: bool = False  # the layout that the family was trained on
    lead: str = ""  # text before every prefix in training, with a tokenizer of SentencePiece's
    named: str = ""  # word of the model's name, if no token distinguishes it
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
_plain = partial(FIMFormat, prefix="<fim_prefix>", suffix="<fim_suffix>", middle="<fim_middle>")
_with_files = partial(_plain, file_separator="<filename>", repository="<reponame>")
_as_starcoder = partial(_with_files, end=("<|endoftext|>", "<fim_pad>", "<filename>"))
# github.com/gty111/EFIM, benchmark/async_benchmark_humaneval.py: the prompts of the models of arXiv 2505.21889, each
# with its stops. "Enhanced" ones have learnt from fragments; the name is all that tells them from the others.
_as_llama_efim = partial(_plain, end=("<|end_of_text|>", "<|begin_of_text|>"), begin="<|begin_of_text|>")

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
    _with_pipes(name="codegemma", end=("<|file_separator|>", "<eos>"), begin="<bos>", file_separator="<|file_separator|>"),
    # huggingface.co/ibm-granite/granite-4.0-micro, tokenizer_config.json. IBM's documentation of Granite 4.0 names FIM
    # among its capabilities, and shows no prompt with several files. We place <|filename|> as in Granite code, which
    # has the same tokens without pipes.
    _with_pipes(name="granite", end=("<|end_of_text|>", "<|fim_pad|>"), file_separator="<|filename|>", repository="<|reponame|>"),
    # lab/midfill_lab/training/from_gguf.py: SmolLM2, which knows <filename> from its pretraining and no FIM
    # markers, with these in the place of reserved tokens.
    _with_pipes(name="smollm2", end=("<|endoftext|>",), file_separator="<filename>", repository="<repo_name>"),
    # lab/midfill_lab/training/vocabulary.py
    _with_pipes(name="midfill", end=("<|endoftext|>",), fragments_suffice=True),
    # huggingface.co/bigcode/starcoder2-3b, special_tokens_map.json; arXiv 2402.19173, section 5.1, for files of a
    # repository.
    _plain(
        name="starcoder2", end=("<|endoftext|>", "<file_sep>", "<fim_pad>"), file_separator="<file_sep>", repository="<repo_name>"
    ),
    # huggingface.co/JetBrains/Mellum-4b-base, model card, "Fill in the middle with additional files as context
    # generation": "<filename>path" before each file, then suffix, prefix, middle; arXiv 2510.05788 says SPM, too.
    _as_starcoder(name="mellum", suffix_first=True, named="mellum"),
    # huggingface.co/ibm-granite/granite-20b-code-instruct-accelerator, special_tokens_map.json.
    _as_starcoder(name="granite-code", named="granite"),
    # huggingface.co/bigcode/starcoderbase-7b, special_tokens_map.json; arXiv 2305.06161, section 5.1: "<reponame>name
    # <filename>path" before a file.
    _as_starcoder(name="starcoder"),
    # github.com/ggml-org/llama.cpp/pull/12988, for the order. The tokens are Granite code's, but for the end.
    _with_files(name="granite-3", end=("<|end_of_text|>", "<fim_pad>", "<filename>")),
    _as_llama_efim(name="llama-efim", named="enhance", fragments_suffice=True),
    _as_llama_efim(name="llama-fim"),
    # The same driver: two of DeepSeek-Coder's markers have changed places, and the end is a token without a name.
    FIMFormat(
        name="deepseek-efim",
        prefix="<｜fim▁begin｜>",
        suffix="<｜fim▁end｜>",
        middle="<｜fim▁hole｜>",
        end=("<｜end▁of▁sentence｜>",),
        end_ids=(32027,),
        begin="<｜begin▁of▁sentence｜>",
        named="enhance",
        fragments_suffice=True,
    ),
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
    FIMFormat(name="codellama", prefix="▁<PRE>", suffix="▁<SUF>", middle="▁<MID>", end=("▁<EOT>", "</s>"), begin="<s>", lead=" "),
    # github.com/mistralai/mistral-common, tokens/tokenizers/instruct.py, InstructTokenizerV2.encode_fim: <s> [SUFFIX]
    # suffix [PREFIX] prefix; SentencePiece's leading space is before the prefix alone, and tekken, the byte-level
    # tokenizer of later models, has none. [MIDDLE] is in no prompt.
    FIMFormat(name="codestral", prefix="[PREFIX]", suffix="[SUFFIX]", end=("</s>",), begin="<s>", suffix_first=True, lead=" "),
    # github.com/zed-industries/zed, crates/edit_prediction: its prompts for GLM-4.5 and later. The ends are those that
    # llama.cpp finds in the models' GGUF files.
    FIMFormat(
        name="glm",
        prefix="<|code_prefix|>",
        suffix="<|code_suffix|>",
        middle="<|code_middle|>",
        end=("<|endoftext|>", "<|user|>", "<|observation|>"),
    ),
    # The tokens are in the GGUF files of LiquidAI's LFM2 and LFM2.5. No prompt is published: the order is the usual.
    FIMFormat(
        name="lfm2",
        prefix="<|fim_pre|>",
        suffix="<|fim_suf|>",
        middle="<|fim_mid|>",
        end=("<|im_end|>", "<|endoftext|>"),
        begin="<|startoftext|>",
    ),
    # huggingface.co/spaces/tiiuae/tiny-h1-blogpost, "FIM format", of Falcon-H1-Tiny-Coder.
    FIMFormat(name="falcon-h1", prefix="<|prefix|>", suffix="<|suffix|>", middle="<|middle|>", end=("<|end_of_text|>",)),
)
_UNPUBLISHED = ("mellum2",)
"""Words of the names of models that have a known family's tokens, and perhaps another order."""
FORMATS = {fim.name: fim for fim in _RECORDS}
"""Every format by its name, the more specific first."""


def choose_format(wanted: str, known_tokens: Container[str], where: str, fallback: FIMFormat | None = None) -> FIMFormat:
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

    Families with the same tokens are distinguished by the model's name: in `where`, a path, its folder on the hub's
    pattern, or else the last two parts.
    """
    name = _model_name(where)
    if unpublished := next((word for word in _UNPUBLISHED if word in name), None):
        raise BadModel(f"{where}: the order of a prompt's parts is not known for {unpublished}: name a --fim-format")
    named = [fim for fim in FORMATS.values() if re.search(re.escape(fim.named) + "(?![a-z])", name)]
    for fim in named:
        if all(token in known_tokens for token in fim.required_tokens):
            return fim
    if fallback is not None:
        return fallback
    raise BadModel(f"{where} {_lack(named, known_tokens)}")


def _model_name(where: str) -> str:
    parts = re.split(r"[/\\]", where.lower())
    return next((part for part in reversed(parts) if part.startswith("models--")), "/".join(parts[-2:]))


def _lack(named: Sequence[FIMFormat], known_tokens: Container[str]) -> str:
    """The markers that a tokenizer lacks to be of the family that it has the markers of, or of any."""
    missing = {
        fim.name: [token for token in fim.required_tokens if token not in known_tokens]
        for fim in named
        if fim.prefix in known_tokens and fim.suffix in known_tokens
    }
    if missing:
        nearest = min(missing, key=lambda name: len(missing[name]))
        return (
            f"has {FORMATS[nearest].prefix}, but is of no family that midfill knows: it lacks "
            f"{', '.join(missing[nearest])}, which the nearest, {nearest}, has"
        )
    looked_for = ", ".join(dict.fromkeys(fim.prefix for fim in FORMATS.values()))
    return (
        f"has no fill-in-the-middle markers that midfill knows (looked for {looked_for}): choose a code model that was "
        "trained for fill-in-the-middle, such as Qwen/Qwen2.5-Coder-1.5B"
    )


_LONGEST_MARKER = 32  # with white space before it
_LIKE_A_MARKER = re.compile(
    r"\s{0,8}([<\[][|｜]?[\w▁-]{0,12}(?:fim|prefix|suffix|middle|hole)[\w▁-]{0,12}[|｜]?[>\]])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """The parts of a rendered prompt, as text."""

    before: str
    after: str
    files: tuple[Snippet, ...] = ()


@dataclass(slots=True)
class _Markers:
    """The markers of the families whose prefix, suffix and middle are the same strings."""

    prefix: str
    suffix: str
    middle: str
    begins: set[str] = field(default_factory=set)
    separators: set[str] = field(default_factory=set)
    repositories: set[str] = field(default_factory=set)
    spaced: bool = False  # a space belongs to each marker, as in `<PRE> prefix <SUF>suffix <MID>`

    @property
    def first(self) -> tuple[str, ...]:
        """The text that a prompt begins with, behind the marker of its beginning."""
        return (self.prefix, self.suffix, *self.separators, *self.repositories)


def read_rendered(text: str) -> RenderedPrompt | None:
    """The parts of a rendered prompt; None if the text does not begin like one, or lacks a marker.

    Before the markers of prefix and suffix stand at most a marker that begins a prompt, a repository's name and files.
    Where a marker's string occurs more than once, the first counts; of the middle's, the last.
    """
    return next((rendered for markers in _MARKERS if (rendered := _read(text, markers)) is not None), None)


def unknown_marker(text: str) -> str | None:
    """What a text that `read_rendered` does not read begins with, if that looks like a marker of some model."""
    found = _LIKE_A_MARKER.match(text)
    return None if found is None else found[1]


def _read(text: str, markers: _Markers) -> RenderedPrompt | None:
    begin = next((begin for begin in markers.begins if begin and text.startswith(begin)), "")
    if not text[len(begin) : len(begin) + _LONGEST_MARKER].lstrip().startswith(markers.first):
        return None
    head_and_rest = _cut_at_first(text[len(begin) :], markers.prefix, markers.suffix)
    if head_and_rest is None:
        return None
    head, first, rest = head_and_rest
    files = tuple(_sections(head, markers))
    second = markers.suffix if first == markers.prefix else markers.prefix
    window, found, rest = rest.partition(second)
    middle_at = rest.rfind(markers.middle) if markers.middle else 0
    if not found or middle_at < 0 or (first == markers.prefix and not markers.middle):
        return None
    last, increment = rest[:middle_at], rest[middle_at + len(markers.middle) :]
    prefix, suffix = (window, last) if first == markers.prefix else (last, window)
    if markers.spaced:
        prefix, suffix = prefix.removeprefix(" ").removesuffix(" "), suffix.removesuffix(" ")
        increment = increment if prefix else increment.removeprefix(" ")
    return RenderedPrompt(prefix + increment, suffix, files)


def _cut_at_first(text: str, *strings: str) -> tuple[str, str, str] | None:
    """The text before the first of the strings, this string, and the text behind it."""
    place, first = min(((text.find(string), string) for string in strings if string in text), default=(-1, ""))
    return None if place < 0 else (text[:place], first, text[place + len(first) :])


def _sections(head: str, markers: _Markers) -> Iterator[Snippet]:
    """The files, each a path in its first line and then the text; the last may be the path of the prompt's own file."""
    if not markers.separators:
        return
    # One more than a request may have: who asks refuses it.
    pieces = re.split("|".join(map(re.escape, sorted(markers.separators))), head, maxsplit=MAX_SNIPPETS + 1)
    for piece in pieces[1:]:  # the first names the repository
        line, _, text = piece.partition("\n")
        if text or line:
            is_path = line and line == line.strip() and not set(line) & set("(){}=;\"'")
            yield Snippet(line, text) if is_path else Snippet("", piece)


def _collect() -> list[_Markers]:
    collected: dict[tuple[str, str, str], _Markers] = {}
    for fim in FORMATS.values():
        prefix, suffix, middle = (marker.removeprefix(SPACE_MARK) for marker in (fim.prefix, fim.suffix, fim.middle))
        markers = collected.setdefault((prefix, suffix, middle), _Markers(prefix, suffix, middle))
        markers.spaced = fim.prefix.startswith(SPACE_MARK)
        markers.begins |= {fim.begin} - {""}
        markers.separators |= {fim.file_separator} - {""}
        markers.repositories |= {fim.repository} - {""}
    return list(collected.values())


_MARKERS = _collect()
