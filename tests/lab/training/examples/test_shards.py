from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from midfill_lab.training.errors import CorpusError
from midfill_lab.training.examples.shards import WindowMakers, WindowSource, make_shard, read_shard
from midfill_lab.training.options import ExampleOptions

LENGTH = 100  # no multiple of 8: bits of two windows do not share a byte


@pytest.fixture
def source(corpus_folder: Path) -> WindowSource:
    options = ExampleOptions(snippet_rate=0.5, symbol_rate=0.5, later_name_rate=0.2, shortest_fragment=2)
    return WindowSource(corpus_folder, options, seed=3)


def test_a_shard_has_the_windows_as_they_are(source: WindowSource, tmp_path: Path) -> None:
    windows = source.windows(LENGTH)
    shard = read_shard(make_shard(source, LENGTH, 5, 4, tmp_path))
    for row in range(4):
        for field, expected in zip(shard, windows[5 + row], strict=True):
            assert np.array_equal(field[row], expected)
    assert shard.ids.base is not None  # mapped, not read
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_several_processes_make_the_bytes_of_one_thread(source: WindowSource, tmp_path: Path) -> None:
    made: list[list[bytes]] = []
    for processes in (0, 1, 3):
        with WindowMakers(source, processes) as makers:
            short, long = makers.sequence(LENGTH, 0, 2, 2), makers.sequence(64, 7, 3, 6)
            shards = [*islice(short, 7), *islice(long, 2)]
            made.append([field.tobytes() for shard in shards for field in shard])
    assert made[0] == made[1] == made[2]
    alone = make_shard(source, 64, 13, 3, tmp_path)  # the second of every other three
    assert made[0][-3:] == [field.tobytes() for field in read_shard(alone)]


def test_shards_are_removed_behind_their_use(source: WindowSource) -> None:
    with WindowMakers(source, 0) as makers:
        sequence = makers.sequence(64, 0, 1, 1)
        folder = Path(makers._folder.name)
        for _ in range(20):
            next(sequence)
            assert len(list(folder.iterdir())) <= 4
    assert not folder.exists()


def test_what_fails_in_a_process_is_told_to_the_trainer(source: WindowSource, tmp_path: Path) -> None:
    with WindowMakers(WindowSource(tmp_path, source.examples, 0), 1) as makers:
        (tmp_path / "tokenizer.json").write_bytes((source.corpus / "tokenizer.json").read_bytes())
        with pytest.raises(CorpusError, match="no usable train corpus"):
            next(makers.sequence(64, 0, 1, 1))


def test_processes_that_make_windows_need_no_torch() -> None:
    code = "import sys, midfill_lab.training.examples.shards; print({'torch', 'transformers'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


KILLED = """
import os, signal, sys
from pathlib import Path
from midfill_lab.training.examples.shards import WindowMakers, WindowSource
from midfill_lab.training.options import ExampleOptions

if __name__ == "__main__":
    makers = WindowMakers(WindowSource(Path(sys.argv[1]), ExampleOptions(), 0), 1)
    next(makers.sequence(64, 0, 1, 1))
    print(*makers._executor._processes, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_processes_end_with_a_trainer_that_is_killed(corpus_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, script, corpus_folder], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        told = process.stdout.read()  # until the last process that could write to it has ended
    assert told.split()
