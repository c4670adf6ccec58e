"""Owns the vocabulary: trains a byte-level BPE, defines the markers, and encodes text without markers."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from inference.checkpoints.gguf.tokenizer import pre_tokenizer
from inference.text.fim import AUTO
from inference.text.tokenization import MarkerIds, TextTokenizer
from midfill_lab.training.options import VocabularyError

END_OF_TEXT = "<|endoftext|>"
PREFIX, SUFFIX, MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
PADDING = "<|fim_pad|>"
# Names and order as in Qwen2.5-Coder; the last two are reserved and never trained.
MARKERS = (END_OF_TEXT, PREFIX, MIDDLE, SUFFIX, PADDING, "<|repo_name|>", "<|file_sep|>")


@dataclass(frozen=True, slots=True)
class TrainingMarkerIds(MarkerIds):
    """With the markers that training uses besides those of a prompt; None for those that the family lacks."""

    end_of_text: int
    padding: int | None

    @property
    def of_prompts(self) -> frozenset[int]:
        """The markers of a prompt's parts."""
        return frozenset(id_ for id_ in (self.prefix, self.suffix, self.middle) if id_ is not None)


class Vocabulary:
    """Encodes fragments of plain text; strings that look like markers become ordinary tokens."""

    def __init__(self, definition: dict[str, Any], where: str, fim_format: str = AUTO) -> None:
        """Use a parsed `tokenizer.json` from `where`.

        Raises:
            BadModel: it is of an unsupported kind, or lacks the markers of a known FIM format.
        """
        self._text = TextTokenizer(definition, where, fim_format)
        self._whole = Tokenizer.from_str(json.dumps(definition))
        self.format = self._text.format
        self.size = self._text.vocabulary_size
        ids = {token.content: id_ for id_, token in self._whole.get_added_tokens_decoder().items()}
        self.markers = TrainingMarkerIds(
            **asdict(self._text.markers), end_of_text=ids[self.format.end[0]], padding=ids.get(PADDING)
        )

    def encode(self, fragment: str) -> list[int]:
        """Token ids of one fragment, without any marker."""
        return list(self._text.encode_once(fragment))

    def count_bytes(self, ids: Iterable[int]) -> int:
        """Bytes of text in tokens; markers have none."""
        return sum(len(self._text.bytes_of(id_) or b"") for id_ in ids)

    def decode(self, ids: list[int]) -> str:
        """The text of token ids; markers show as their names."""
        return self._whole.decode(ids, skip_special_tokens=False)


def load_vocabulary(path: Path, fim_format: str = AUTO) -> Vocabulary:
    """Read a `tokenizer.json`.

    Raises:
        VocabularyError: the file is missing or not JSON.
        BadModel: the tokenizer is unusable.
    """
    if not path.is_file():
        raise VocabularyError(f"no tokenizer at {path}")
    try:
        return Vocabulary(json.loads(path.read_text()), str(path), fim_format)
    except ValueError as error:
        raise VocabularyError(f"{path} is not JSON: {error}") from error


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn a byte-level BPE of `size` tokens, the last of which are the markers.

    Raises:
        VocabularyError: `size` leaves no room for the 256 bytes and the markers, or the texts are too
            few to fill it.
    """
    if size < 256 + len(MARKERS):
        raise VocabularyError(f"a vocabulary of {size} has no room for 256 bytes and {len(MARKERS)} markers")
    # As Qwen2.5-Coder's tokenizer splits: engines that support that family can read these vocabularies.
    (split,) = pre_tokenizer("qwen2", "this module").patterns
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(MARKERS), show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in MARKERS])
    if tokenizer.get_vocab_size() != size:
        raise VocabularyError(f"the texts give {tokenizer.get_vocab_size()} tokens, fewer than the {size} requested")
    return tokenizer
