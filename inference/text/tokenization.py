"""Text to token ids and back: segments of text are tokenized one by one, and an LRU cache keeps the tokens of each.

A pre-tokenizer splits text into pieces before BPE merges within each. A cut between two pieces that leaves the
pieces on both sides unchanged changes no token; which cuts these are depends on how the pre-tokenizer treats runs of
white space. Each rule below suits one kind, and `choose_rule` returns the first that a given pre-tokenizer satisfies
on samples.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from tokenizers import Tokenizer

from inference.text.fim import AUTO, FIMFormat, choose_format
from inference.text.token_boundaries import MergePairs, StablePieces
from inference.text.token_ids import BYTES_PER_ID, SPACE_MARK, TextStream, TokenIds, bytes_of_piece, bytes_of_token, packed
from protocol.errors import BadModel, bad_model

Key = TypeVar("Key")
Value = TypeVar("Value")


class LRUCache(Generic[Key, Value]):
    """A cache whose entries carry their size in bytes; an entry larger than the budget is not kept."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        """The keys, the least recently used first."""
        return iter(self._entries)

    def get(self, key: Key) -> Value | None:
        """The value, which becomes the most recently used; None if missing."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def remove(self, key: Key) -> None:
        if key in self._entries:
            self.used_bytes -= self._entries.pop(key)[1]

    def remove_all(self, meant: Callable[[Key], bool]) -> None:
        """Remove the entries of the keys that are `meant`."""
        for key in list(filter(meant, self._entries)):
            self.remove(key)

    def put(self, key: Key, value: Value, size_bytes: int) -> None:
        """Keep `value`, and evict the oldest entries that no longer fit."""
        self.remove(key)
        if size_bytes > self._max_bytes:
            return
        self._entries[key] = (value, size_bytes)
        self.used_bytes += size_bytes
        while len(self._entries) > self._max_entries or self.used_bytes > self._max_bytes:
            _, (_, freed) = self._entries.popitem(last=False)
            self.used_bytes -= freed


MAX_SEGMENT_CHARS = 4096  # a longer segment (a minified line) is cut at this length, even within a piece

CutRule = Callable[[str], Iterator[int]]

_NEWLINE_BEFORE_LINE = re.compile(r"[\r\n](?=[^\r\n])")
_NEWLINE_BEFORE_TEXT = re.compile(r"[\r\n](?=[^\S\r\n]*\S)")
_SPACE_FROM_NEWLINE = re.compile(r"[\r\n][^\S\x1c-\x1f]*")  # in tokenizers \s excludes U+001C-1F


def before_lines(text: str) -> Iterator[int]:
    """Before each line that follows a newline: for pre-tokenizers that keep every newline apart (DeepSeek-Coder)."""
    return (match.end() for match in _NEWLINE_BEFORE_LINE.finditer(text))


def before_nonblank_lines(text: str) -> Iterator[int]:
    r"""Before each line that is not blank: for the pattern `\s*[\r\n]+` (Qwen2, Llama 3, GPT-4 and their like)."""
    return (match.end() for match in _NEWLINE_BEFORE_TEXT.finditer(text))


def within_indentation(text: str) -> Iterator[int]:
    r"""Before the last white space of a run with a newline: for the pattern `\s+(?!\S)|\s+` behind split digits.

    That last character joins the following word, or forms a piece (StarCoder2, SmolLM). Before a digit it stays with
    the run, and the cut is before the digit.
    """
    for end in _ends_of_space(text):
        digit_follows = unicodedata.category(text[end]).startswith("N")
        cut = end if digit_follows else end - 1
        if cut > 0:
            yield cut


def within_all_indentation(text: str) -> Iterator[int]:
    """As `within_indentation`, before digits too: for the same pattern alone (GPT-2, Mellum)."""
    return (end - 1 for end in _ends_of_space(text) if end > 1)


def _ends_of_space(text: str) -> Iterator[int]:
    """Where text follows white space with a newline.

    A lookahead for that text would try a run at the end of `text` from each of its characters.
    """
    ends = (match.end() for match in _SPACE_FROM_NEWLINE.finditer(text))
    return (end for end in ends if end < len(text))


RULES: tuple[CutRule, ...] = (before_lines, before_nonblank_lines, within_indentation, within_all_indentation)

PROBES = (
    "def f(x):\n    return x\n\n\nclass A:\n\tb = 1\n\t\tc\n",
    "a\n\n   \n  b\n \n\n\tc\r\n\r\n  d\r\n e;\n}\n;\n\n",
    "x = [\n    1,\n  22,\n3\n]\n\n  4\n\n5  \n\n  'it''s'\n'll\n",
    '  \n   é\n\n    中文\n  \t\n\t(a)\n\n\n  """\n',
)


def choose_rule(pre_tokens: Callable[[str], list[str]]) -> CutRule:
    """The first rule whose segments, concatenated, have the pieces of the whole text.

    A pre-tokenizer that satisfies none gets `before_nonblank_lines`: its segments then define the tokenization, the
    same in every prompt, instead of only speeding it up.
    """
    return next((rule for rule in RULES if keeps_pieces(rule, pre_tokens)), before_nonblank_lines)


def keeps_pieces(rule: CutRule, pre_tokens: Callable[[str], list[str]]) -> bool:
    """Whether the segments of the samples, concatenated, have the pieces of the whole."""
    return all(pieces_of_segments(probe, rule, pre_tokens) == pre_tokens(probe) for probe in PROBES)


def pieces_of_segments(text: str, rule: CutRule, pre_tokens: Callable[[str], list[str]]) -> list[str]:
    """The pieces of each segment of `text`, one after another."""
    return [piece for segment in split_segments(text, rule) for piece in pre_tokens(segment)]


def split_segments(text: str, rule: CutRule) -> Iterator[str]:
    """The segments of `text`, complete and in order; none is longer than MAX_SEGMENT_CHARS."""
    start = 0
    for cut in chain(rule(text), (len(text),)):
        while cut - start > MAX_SEGMENT_CHARS:
            yield text[start : start + MAX_SEGMENT_CHARS]
            start += MAX_SEGMENT_CHARS
        if cut > start:
            yield text[start:cut]
            start = cut


MOST_TOKENS = 2**22  # of a vocabulary: the largest have half a million
MAX_CACHED_BYTES = 8 * 2**20
"""Of each cache: what a hundred documents at work need. Every key adds a text that is hardly met again, and fills it."""
BYTES_PER_ENTRY = 256
MAX_CACHED = MAX_CACHED_BYTES // BYTES_PER_ENTRY


@dataclass(frozen=True, slots=True)
class MarkerIds:
    """The ids of a FIM format's markers; None for those that the family does not have."""

    prefix: int
    suffix: int
    middle: int | None
    begin: int | None
    file_separator: int | None
    end: frozenset[int]


class TextTokenizer:
    """Tokenizes fragments of text, in which no string is ever a marker."""

    def __init__(
        self,
        definition: dict[str, Any],
        where: str,
        fim_format: str = AUTO,
        *,
        fallback: FIMFormat | None = None,
        fragments_suffice: bool | None = None,
    ) -> None:
        """`definition` is a parsed tokenizer.json; BadModel, naming `where`, if it cannot be used.

        `fallback` is the format if "auto" recognizes none. `fragments_suffice` holds for this model, whatever its
        family; None if the checkpoint says nothing.
        """
        added = added_tokens(definition, where)
        family = choose_format(fim_format, added, where, fallback)
        self.is_byte_level = _is_byte_level(definition, where)
        self.format = replace(
            family,
            fragments_suffice=family.fragments_suffice if fragments_suffice is None else fragments_suffice,
            lead="" if self.is_byte_level else family.lead,
        )
        self.markers = _marker_ids(self.format, added)
        self._tokenizer = _text_tokenizer(definition, where)
        self.vocabulary_size = 1 + max(chain(definition["model"]["vocab"].values(), added.values()))
        self._not_text = frozenset(id_ for token, id_ in added.items() if not token.replace(SPACE_MARK, " ").isspace())
        self._marker_ids = {token: id_ for token, id_ in added.items() if id_ in self._not_text}
        self._bytes_of_name = bytes_of_token if self.is_byte_level else bytes_of_piece
        self.bytes_of: Callable[[int], bytes | None] = cache(self._bytes_of)
        """The bytes of a token; None if it is no text."""
        self._normalizer, self._pre_tokenizer = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
        # White space that is matched before the pre-tokenizer is out of the sight of what looks at its pieces.
        self._hides_pieces = self.is_byte_level and any(token.isspace() for token in added)
        self._merge_pairs = MergePairs(() if self.is_byte_level else self._tokenizer.get_vocab())
        self._cut_rule = choose_rule(self._pre_tokens)
        keeps = keeps_pieces(self._cut_rule, self._pre_tokens)
        whole = partial(pieces_of_segments, rule=self._cut_rule, pre_tokens=self._pre_tokens)
        self._stable_pieces = StablePieces(self._pre_tokens if keeps else whole)
        self._blocks: LRUCache[str, TokenIds] = LRUCache(MAX_CACHED, MAX_CACHED_BYTES)
        self._fragments: LRUCache[str, TokenIds] = LRUCache(MAX_CACHED, MAX_CACHED_BYTES)
        self._check_markers(added, where)

    def encode(self, fragment: str) -> TokenIds:
        """The tokens of a fragment: those of its blocks, one after another.

        Blocks are cut where that changes no token (`inference.text.tokenization`), except that lines of more than
        MAX_SEGMENT_CHARS are cut regardless. A lone surrogate counts as U+FFFD.
        """
        return self._remembered(self._fragments, fragment, self._encode_segments)

    def encode_once(self, fragment: str) -> TokenIds:
        """The tokens of a fragment that is not expected again: nothing of it is looked up or remembered."""
        return self._encode_block(fragment)

    def count_tokens(self, text: str) -> int:
        """How many tokens `text` has as one fragment."""
        return len(self.encode(text))

    def encode_stable(self, fragment: str) -> tuple[TokenIds, int]:
        """The tokens of a fragment that is being typed, and how many leading ones it has whatever text follows it."""
        token_ids = last_tokens = packed()
        last_block = ""
        for last_block in split_segments(fragment, self._cut_rule):  # where the last begins depends on nothing after it
            last_tokens = self._remembered(self._blocks, last_block, self._encode_block)
            token_ids = token_ids + last_tokens
        lengths = [len(self.bytes_of(token_id) or b"") for token_id in last_tokens]
        stable_bytes = self._stable_bytes(last_block, lengths)
        stable = 0
        while stable_bytes > 0:
            stable_bytes -= lengths[stable]
            stable += 1
        assert stable_bytes == 0, f"{last_block!r} has no token that ends where its stable bytes do"
        return token_ids, len(token_ids) - len(last_tokens) + stable

    def text_tokens(self) -> dict[int, bytes]:
        """The bytes of every token that is text."""
        spelled = ((token_id, self.bytes_of(token_id)) for token_id in range(self.vocabulary_size))
        return {token_id: token_bytes for token_id, token_bytes in spelled if token_bytes is not None}

    def marker_id(self, name: str) -> int | None:
        """The token with this name that is no text; None if there is none."""
        return self._marker_ids.get(name)

    def is_text(self, token_id: int) -> bool:
        """Whether the token stands for text, rather than being a marker or an unused row of the vocabulary."""
        return self.bytes_of(token_id) is not None

    def text_stream(self, skip: int = 0) -> TextStream:
        """A stream that takes text tokens, as they are generated, back to text, without the first `skip` bytes."""
        return TextStream(self._text_bytes, skip)

    def _remembered(self, cache: LRUCache[str, TokenIds], text: str, encode: Callable[[str], TokenIds]) -> TokenIds:
        token_ids = cache.get(text)
        if token_ids is None:
            token_ids = encode(text)
            cache.put(text, token_ids, BYTES_PER_ENTRY + 4 * len(text) + BYTES_PER_ID * len(token_ids))
        return token_ids

    def _encode_segments(self, fragment: str) -> TokenIds:
        token_ids = packed()
        for block in split_segments(fragment, self._cut_rule):
            token_ids += self._remembered(self._blocks, block, self._encode_block)
        return token_ids

    def _encode_block(self, block: str) -> TokenIds:
        return packed(self._tokenizer.encode(_without_surrogates(block), add_special_tokens=False).ids)

    def _bytes_of(self, token_id: int) -> bytes | None:
        token = None if token_id in self._not_text else self._tokenizer.id_to_token(token_id)
        return None if token is None else self._bytes_of_name(token)

    def _pre_tokens(self, text: str) -> list[str]:
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        if self._pre_tokenizer is None:
            return [text]
        return list(map(itemgetter(0), self._pre_tokenizer.pre_tokenize_str(text)))

    def _stable_bytes(self, block: str, token_lengths: Sequence[int]) -> int:
        text = _without_surrogates(block)
        if not self.is_byte_level:
            return self._merge_pairs.stable(self._normalized(text).replace(" ", SPACE_MARK), token_lengths)
        return 0 if self._hides_pieces else self._stable_pieces.stable(text)

    def _normalized(self, text: str) -> str:
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))

    def _text_bytes(self, token_id: int) -> bytes:
        token_bytes = self.bytes_of(token_id)
        if token_bytes is None:
            raise ValueError(f"token {token_id} is not text")
        return token_bytes

    def _check_markers(self, added: dict[str, int], where: str) -> None:
        """A vocabulary could hold a marker's string as an ordinary token, which source code would then hit."""
        for marker in self.format.required_tokens:
            if added[marker] in self._encode_block(marker):
                raise BadModel(f"{where}: the text {marker!r} is tokenized as the marker {added[marker]}")


def read_tokenizer(path: Path, fim_format: str = AUTO, *, fragments_suffice: bool | None = None) -> TextTokenizer:
    """The tokenizer of a tokenizer.json; BadModel if it is not one that midfill can use.

    `fim_format` is the name of a format, or "auto" to recognise it.
    """
    definition = read_definition(path)
    with bad_model(f"{path} cannot be read as a tokenizer"):
        return TextTokenizer(definition, str(path), fim_format, fragments_suffice=fragments_suffice)


def read_definition(path: Path) -> dict[str, Any]:
    """A parsed tokenizer.json; BadModel if it is none, or of a kind that midfill cannot use."""
    with bad_model(f"{path} cannot be read as a tokenizer"):
        definition: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(definition, dict) or "model" not in definition:
            raise BadModel(f"{path} is not a tokenizer of the tokenizers library: it has no 'model'")
        _is_byte_level(definition, str(path))
        added_tokens(definition, str(path))
    return definition


def added_tokens(definition: dict[str, Any], where: str) -> dict[str, int]:
    """The ids of a definition's added tokens; BadModel, naming `where`, if a token's id cannot be one."""
    added = {str(token["content"]): token["id"] for token in definition.get("added_tokens") or []}
    ids = [*definition["model"]["vocab"].values(), *added.values()]
    if not {int} >= set(map(type, ids)) or not 0 <= min(ids, default=0) <= max(ids, default=0) < MOST_TOKENS:
        raise BadModel(f"{where} has a token whose id is no whole number from 0 to {MOST_TOKENS - 1}")
    return added


def _is_byte_level(definition: dict[str, Any], where: str) -> bool:
    """True for byte-level BPE, False for BPE with byte fallback (SentencePiece's); BadModel for any other kind."""
    model, decoder = definition["model"], definition.get("decoder") or {}
    if model.get("type") == "BPE" and decoder.get("type") == "ByteLevel":
        return True
    steps = [step.get("type") for step in decoder.get("decoders", [decoder])]
    if model.get("type") == "BPE" and model.get("byte_fallback") and "ByteFallback" in steps:
        return False
    raise BadModel(f"{where} is not supported: midfill needs a byte-level BPE tokenizer, or BPE with byte fallback")


def _text_tokenizer(definition: dict[str, Any], where: str) -> Tokenizer:
    """The tokenizer without its added tokens, so that a marker's string in source code stays text.

    Without SentencePiece's leading space too: a fragment may begin in the middle of a word.
    """
    text_only = {
        **definition,
        "added_tokens": [token for token in definition.get("added_tokens") or [] if token["content"].isspace()],
        "normalizer": _without_lead(definition.get("normalizer")),
        "pre_tokenizer": _without_lead(definition.get("pre_tokenizer")),
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    try:
        return Tokenizer.from_str(json.dumps(text_only))
    except Exception as error:  # the library raises plain Exception for every malformed definition
        raise BadModel(f"the tokenizers library refuses {where}: {error}") from error


def _without_lead(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer without what puts a space before the text."""
    if step is None or step.get("type") == "Prepend":
        return None
    if step.get("type") == "Metaspace":
        return {key: value for key, value in step.items() if key != "add_prefix_space"} | {"prepend_scheme": "never"}
    for steps in ("normalizers", "pretokenizers"):
        if steps in step:
            return {**step, steps: [kept for inner in step[steps] if (kept := _without_lead(inner)) is not None]}
    return step


def _marker_ids(fim: FIMFormat, added: dict[str, int]) -> MarkerIds:
    return MarkerIds(
        prefix=added[fim.prefix],
        suffix=added[fim.suffix],
        middle=added[fim.middle] if fim.middle else None,
        begin=added[fim.begin] if fim.begin else None,
        file_separator=added[fim.file_separator] if fim.file_separator else None,
        end=frozenset((*(added[token] for token in fim.end), *fim.end_ids)),
    )


def _without_surrogates(text: str) -> str:
    """Pairs of surrogates as the characters they stand for, lone ones as U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
