"""Makes windows ahead of their use, in processes or in a thread, as shards: files that are mapped to memory."""

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
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np

from inference.text.fim import AUTO
from midfill_lab.training.corpus.corpus import Corpus, Split
from midfill_lab.training.corpus.vocabulary import load_vocabulary
from midfill_lab.training.examples.windows import Window, Windows
from midfill_lab.training.options import ExampleOptions

AHEAD = 2
"""Shards of a sequence that each process has in work or ready, so that none waits for the trainer."""
_LOST = 1  # the exit status of a process whose trainer is gone


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    learned, begins = (
        np.unpackbits(rows[name], axis=1, count=length).astype(np.bool_) for name in ("learned", "begins")
    )
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
