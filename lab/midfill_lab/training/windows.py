"""Produces training windows, each a pure function of the seed and its index, and makes them ahead of their use.

Processes or a thread make them as shards: files that are mapped to memory.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from inference.text.fim import AUTO
from midfill_lab.training.corpus import Corpus, Split
from midfill_lab.training.examples import (
    SnippetPicker,
    SymbolUse,
    Tokens,
    cut_example,
    encode_fragments,
    encode_snippet,
    lay_out,
    random_fragments,
    with_context,
)
from midfill_lab.training.options import ExampleOptions
from midfill_lab.training.vocabulary import Vocabulary, load_vocabulary
from protocol.messages import Snippet

MIN_ROOM = 48
MIN_PIECE_CHARS = 120
MAX_BYTES_PER_TOKEN = 16
FILLING_BYTES_PER_TOKEN = 3  # seldom more tokens than there is room for
MAX_SNIPPET_SHARE = 0.4  # of a window's room, for snippets
CHARS_PER_TOKEN = 3.2
_NOTHING = Tokens([], [])
AHEAD = 2
"""Shards of a sequence that each process has in work or ready, so that none waits for the trainer."""
_LOST = 1  # the exit status of a process whose trainer is gone


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

    def __init__(self, corpus: Corpus, vocabulary: Vocabulary, options: ExampleOptions, *, length: int, seed: int) -> None:
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


@dataclass(frozen=True)
class WindowSource:
    """What windows are made of: a corpus folder with a `tokenizer.json`; any process makes the same of it."""

    corpus: Path
    examples: ExampleOptions
    seed: int
    fim_format: str = AUTO
    split: Split = "train"

    def windows(self, length: int) -> Windows:
        """The windows of `length` tokens."""
        vocabulary = load_vocabulary(self.corpus / "tokenizer.json", self.fim_format)
        return Windows(Corpus(self.corpus, self.split), vocabulary, self.examples, length=length, seed=self.seed)


class WindowMakers:
    """Makes shards, each the windows of one step, in `processes` processes; in a thread if there are none."""

    def __init__(self, source: WindowSource, processes: int) -> None:
        self._source = source
        self._folder = TemporaryDirectory(prefix="midfill-windows-", ignore_cleanup_errors=True)
        self._ahead = AHEAD * max(1, processes)
        self._begun: dict[tuple[int, int, int, int], Iterator[Window]] = {}
        self._executor: Executor = (
            # Not forked: a copy of a process with threads, such as torch's, may wait for ever for one of their locks.
            ProcessPoolExecutor(processes, get_context("spawn"), _begin_to_make)
            if processes
            else ThreadPoolExecutor(1, "windows")
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._executor.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def sequence(self, length: int, first: int, size: int, stride: int) -> Iterator[Window]:
        """Endless shards of `size` windows of `length` tokens, [size, length], from `first`, `first + stride` and on.

        The first ones are being made when this returns, or since `begin` was called for them.
        """
        return self._begun.pop((length, first, size, stride), None) or self._shards(length, first, size, stride)

    def begin(self, length: int, first: int, size: int, stride: int) -> None:
        """Begin to make the shards of a sequence that will be asked for, such as while a model is loaded."""
        self._begun[length, first, size, stride] = self._shards(length, first, size, stride)

    def _shards(self, length: int, first: int, size: int, stride: int) -> Iterator[Window]:
        path = Path(self._folder.name)
        made: deque[Future[Path]] = deque()
        starts = iter(range(first, 2**62, stride))

        def order() -> None:
            made.append(self._executor.submit(make_shard, self._source, length, next(starts), size, path))

        for _ in range(self._ahead):
            order()

        def shards() -> Iterator[Window]:
            while True:
                shard = made.popleft().result()
                order()
                yield read_shard(shard)
                shard.unlink(missing_ok=True)

        return shards()


def make_shard(source: WindowSource, length: int, first: int, count: int, folder: Path) -> Path:
    """Write `count` windows from index `first` on to a file in `folder`, which appears when it is complete.

    It is an array of numpy's format with a record for each window: `ids`, uint16 if the vocabulary allows, else uint32,
    and `learned` and `begins`, a bit for each token.
    """
    windows = _opened(source, length)
    ids = np.uint16 if windows.vocabulary_size <= 2**16 else np.uint32
    bits = (np.uint8, (-(-length // 8),))
    record = np.dtype([("ids", ids, (length,)), ("learned", *bits), ("begins", *bits)])
    path = folder / f"{length}-{first}-{count}.npy"
    partial = path.with_suffix(".partial")
    rows = np.lib.format.open_memmap(partial, mode="w+", dtype=record, shape=(count,))
    for row in range(count):
        window = windows[first + row]
        rows[row] = window.ids, np.packbits(window.learned), np.packbits(window.begins)
    rows.flush()
    del rows
    return partial.replace(path)


def read_shard(path: Path) -> Window:
    """The windows of a shard: [count, length]; the ids stay in the file until they are used."""
    rows = np.load(path, mmap_mode="r")
    length = rows["ids"].shape[1]
    learned, begins = (np.unpackbits(rows[name], axis=1, count=length).astype(np.bool_) for name in ("learned", "begins"))
    return Window(rows["ids"], learned, begins)


@lru_cache(maxsize=4)
def _opened(source: WindowSource, length: int) -> Windows:
    """The windows, with what they remember of the corpus, for all shards that this process makes."""
    return source.windows(length)


def _begin_to_make() -> None:
    """Set up a process that makes windows."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's: it stops after a step
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(_LOST)  # the trainer was killed; the pool would wait for it for ever

    threading.Thread(target=end_with_parent, daemon=True).start()
