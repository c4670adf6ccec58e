"""Produces training windows, each a pure function of the seed and its index."""

from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from midfill_lab.training.corpus.corpus import Corpus
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.examples.examples import (
    Tokens,
    cut_example,
    encode_fragments,
    encode_snippet,
    lay_out,
    random_fragments,
    with_context,
)
from midfill_lab.training.examples.snippets import SnippetPicker, SymbolUse
from midfill_lab.training.options import ExampleOptions
from protocol.messages import Snippet

MIN_ROOM = 48
MIN_PIECE_CHARS = 120
MAX_BYTES_PER_TOKEN = 16
FILLING_BYTES_PER_TOKEN = 3  # seldom more tokens than there is room for
MAX_SNIPPET_SHARE = 0.4  # of a window's room, for snippets
CHARS_PER_TOKEN = 3.2
_NOTHING = Tokens([], [])


class Window(NamedTuple):
    """Packed examples, each field [T], or [B, T] for several windows.

    Attributes:
        ids: the tokens, uint32.
        learned: whether the loss counts the prediction of each, bool.
        begins: whether each is the first of an example, bool. Examples do not see each other, as requests do not.
    """

    ids: NDArray[np.uint32]
    learned: NDArray[np.bool_]
    begins: NDArray[np.bool_]


class Windows:
    """Windows of exactly `length` tokens, packed from whole examples.

    An epoch divides the corpus, with its documents in random order, into slots of about one window of text, and visits
    the slots in random order. Each slot's lines become examples. Examples of random lines fill the rest of the window,
    and left-to-right text what is too short for one.
    Since windows are pure functions of `(seed, length, index)`, a resume needs only their count, and any process can
    make any of them.
    """

    def __init__(
        self, corpus: Corpus, vocabulary: Vocabulary, options: ExampleOptions, *, length: int, seed: int
    ) -> None:
        self._corpus = corpus
        self._vocabulary = vocabulary
        self._picker = SnippetPicker(corpus)
        self._options = options
        self._length = length
        self._seed = seed
        self.vocabulary_size = vocabulary.size
        self._slot_bytes = round(length * bytes_per_token(corpus, vocabulary))
        self.windows_per_epoch = max(1, corpus.num_bytes // self._slot_bytes)
        self._epoch_order = lru_cache(maxsize=2)(self._shuffle_epoch)

    def __getitem__(self, index: int) -> Window:
        """Window `index`, without an upper limit: epochs repeat without end."""
        rng = Random(f"{self._seed}/{self._length}/{index}")
        packed = _Packed(self._options.prompt_loss)
        for document, text in self._slot_texts(index, rng):
            room = self._length - len(packed.ids)
            if room < MIN_ROOM:
                break
            packed.add(*self._encode(document, text, room, rng))
        while (room := self._length - len(packed.ids)) >= MIN_ROOM:
            example = self._encode(*self._random_text(room * FILLING_BYTES_PER_TOKEN, rng), room, rng)
            if example == (_NOTHING, _NOTHING):
                break
            packed.add(*example)
        while (room := self._length - len(packed.ids)) > 0:
            _, text = self._random_text(room * MAX_BYTES_PER_TOKEN, rng)
            packed.add(_NOTHING, self._encode_left_to_right(text, room, rng))
        return packed.window()

    def _random_text(self, size: int, rng: Random) -> tuple[int, str]:
        """A random document, and lines from a random position of it: about `size` bytes unless the document ends."""
        document = rng.randrange(len(self._corpus))
        start = rng.randrange(int(self._corpus.boundaries[document + 1] - self._corpus.boundaries[document]))
        return document, self._corpus.lines_between(document, start, start + size)

    def _shuffle_epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of an epoch: document order, the byte where each document then ends, and slot order."""
        rng = np.random.default_rng((self._seed, self._length, epoch))
        documents = rng.permutation(len(self._corpus))
        ends = np.cumsum(np.diff(self._corpus.boundaries)[documents])
        return documents, ends, rng.permutation(self.windows_per_epoch)

    def _slot_texts(self, index: int, rng: Random) -> Iterator[tuple[int, str]]:
        """The pieces of text, whole lines, in a window's slot, with their documents."""
        epoch, position = divmod(index, self.windows_per_epoch)
        documents, ends, slots = self._epoch_order(epoch)
        start = int(slots[position]) * self._slot_bytes
        stop = start + self._slot_bytes
        place = int(np.searchsorted(ends, start, side="right"))
        while start < stop and place < len(documents):
            document, end = int(documents[place]), int(ends[place])
            begin = end - int(self._corpus.boundaries[document + 1] - self._corpus.boundaries[document])
            text = self._corpus.lines_between(document, start - begin, min(stop, end) - begin)
            yield from ((document, piece) for piece in _pieces(text, self._options.piece_rate, rng))
            start, place = end, place + 1

    def _encode(self, document: int, text: str, room: int, rng: Random) -> tuple[Tokens, Tokens]:
        """One example of at most `room` tokens, as prompt and middle; a longer text loses lines at its head."""
        if rng.random() >= self._options.fim_rate:
            return _NOTHING, self._encode_left_to_right(text, room, rng)
        snippets: tuple[Snippet, ...] = ()
        use: SymbolUse | None = None
        max_chars = MAX_SNIPPET_SHARE * room * CHARS_PER_TOKEN
        wants_use = self._options.symbol_rate > 0 and rng.random() < self._options.symbol_rate
        if wants_use and (use := self._picker.find_use(document, text, rng)):
            snippets = self._picker.with_definition(document, text, use, max_chars, rng)
        elif rng.random() < self._options.snippet_rate:
            snippets = self._picker.pick(document, text, max_chars, rng)
        context = [token for snippet in snippets for token in encode_snippet(snippet, self._vocabulary)]
        room -= len(context)
        while len(text) >= MIN_PIECE_CHARS:
            example = cut_example(text, self._options, rng, None if use is None else len(text) - use.from_end)
            prompt, middle = lay_out(example, self._vocabulary)
            size = len(prompt.ids) + len(middle.ids)
            if size <= room:
                return with_context(prompt, context, self._vocabulary), middle
            excess = 2 * (size - room)
            text = text[text.find("\n", excess) + 1 :] if "\n" in text[excess:] else ""
            if use is not None and use.from_end > len(text):
                use = None
        return _NOTHING, _NOTHING

    def _encode_left_to_right(self, text: str, room: int, rng: Random) -> Tokens:
        """As much of `text` as fits, followed by `<|endoftext|>` unless it was cut."""
        split = rng.random() < self._options.fragment_rate
        tokens = encode_fragments(random_fragments(text, self._options, rng) if split else (text,), self._vocabulary)
        markers = self._vocabulary.markers
        begin = [] if markers.begin is None else [markers.begin]
        whole = Tokens.all_learned(begin) + tokens + Tokens.all_learned([markers.end_of_text])
        return Tokens(whole.ids[:room], whole.learned[:room])


class _Packed:
    """The examples of a window so far."""

    def __init__(self, prompt_loss: bool) -> None:
        self.ids: list[int] = []
        self._learned: list[bool] = []
        self._begins: list[int] = []
        self._prompt_loss = prompt_loss

    def add(self, prompt: Tokens, text: Tokens) -> None:
        """Add an example; the loss counts what is to be learned of `text`, and of `prompt` if the options say so.

        It never counts the first token.
        """
        ids = prompt.ids + text.ids
        if not ids:
            return
        learned = [self._prompt_loss and each for each in prompt.learned] + text.learned
        self._begins.append(len(self.ids))
        self.ids += ids
        self._learned += [False, *learned[1:]]

    def window(self) -> Window:
        begins = np.zeros(len(self.ids), dtype=np.bool_)
        begins[self._begins] = True
        return Window(np.array(self.ids, dtype=np.uint32), np.array(self._learned, dtype=np.bool_), begins)


def _pieces(text: str, rate: float, rng: Random) -> Iterator[str]:
    """Cut a slot's lines into pieces like small files or small windows."""
    while len(text) > 2 * MIN_PIECE_CHARS and rng.random() < rate:
        cut = text.find("\n", rng.randint(MIN_PIECE_CHARS, len(text) - MIN_PIECE_CHARS)) + 1
        if not 0 < cut < len(text):
            break
        yield text[:cut]
        text = text[cut:]
    if text:
        yield text


def bytes_per_token(corpus: Corpus, vocabulary: Vocabulary, sample: int = 64) -> float:
    """Bytes per token over some documents, without markers."""
    indices = range(0, len(corpus), max(1, len(corpus) // sample))
    texts = [corpus.document(index) for index in indices]
    tokens = sum(len(vocabulary.encode(text)) for text in texts)
    return sum(len(text.encode()) for text in texts) / tokens
