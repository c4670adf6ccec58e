from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from midfill_lab.training.corpus import Corpus, Document, Manifest, write_corpus
from midfill_lab.training.options import CorpusError, ExampleOptions
from midfill_lab.training.vocabulary import Vocabulary
from midfill_lab.training.windows import WindowMakers, Windows, WindowSource, make_shard, read_shard

LENGTH = 128


def windows(corpus: Corpus, vocabulary: Vocabulary, seed: int = 0, **options: float) -> Windows:
    return Windows(corpus, vocabulary, replace(ExampleOptions(), **options), length=LENGTH, seed=seed)


def test_a_window_depends_on_nothing_but_its_seed_and_index(corpus: Corpus, vocabulary: Vocabulary) -> None:
    first, second = windows(corpus, vocabulary), windows(corpus, vocabulary)
    for index in (9, 3, 10_000):
        assert all(map(np.array_equal, first[index], second[index]))
    assert not np.array_equal(first[3].ids, windows(corpus, vocabulary, seed=1)[3].ids)
    assert not np.array_equal(first[3].ids, first[4].ids)


def test_fill_in_the_middle_examples_are_whole(corpus: Corpus, vocabulary: Vocabulary) -> None:
    markers = vocabulary.markers
    made = windows(corpus, vocabulary, fim_rate=1.0, spm_rate=0.0)
    middles = 0
    for index in range(50):
        ids = made[index].ids.tolist()
        counts = [ids.count(marker) for marker in (markers.prefix, markers.suffix, markers.middle)]
        assert counts[0] == counts[1] == counts[2] <= ids.count(markers.end_of_text)
        middles += counts[2]
    assert middles >= 40


def test_middles_begin_at_names_of_other_files_behind_their_definitions(vocabulary: Vocabulary, tmp_path: Path) -> None:
    using = "".join(f"        water_{number} = Kettle(litres={number})\n" for number in range(40))
    defining = "# tea\nclass Kettle:\n    def __init__(self, litres):\n        self.litres = litres\n"
    documents = [Document(f"def fill():\n{using}", "a", "use.py"), Document(defining, "a", "b.py")]
    write_corpus(tmp_path, {"train": documents}, Manifest((), {}))
    options = ExampleOptions(
        fim_rate=1.0, efim_rate=0.0, spm_rate=0.0, fragment_rate=0.0, snippet_rate=0.0, symbol_rate=1.0, open_end_rate=0.0
    )
    made = Windows(Corpus(tmp_path, "train"), vocabulary, options, length=512, seed=0)
    markers = vocabulary.markers
    middles = 0
    for index in range(10):
        ids, _, begins = made[index]
        for begin in np.flatnonzero(begins).tolist():
            example = ids[begin:].tolist()
            if markers.middle not in example or example[0] == markers.prefix:
                continue  # an example without context: its text has no use
            assert "class Kettle:" in vocabulary.decode(example[: example.index(markers.prefix)])
            middle = example[example.index(markers.middle) + 1 : example.index(markers.end_of_text)]
            assert re.fullmatch(r"Kettle\(litres=\d+\)", vocabulary.decode(middle))
            middles += 1
    assert middles > 10


def test_examples_begin_where_their_markers_do(corpus: Corpus, vocabulary: Vocabulary) -> None:
    markers = vocabulary.markers
    made = windows(corpus, vocabulary, fim_rate=1.0, spm_rate=0.0, snippet_rate=0.0)
    begun = 0
    for index in range(50):
        ids, _, begins = made[index]
        assert begins[0]
        assert begins[ids == markers.prefix].all()
        assert (ids[np.flatnonzero(begins)[1:] - 1] == markers.end_of_text).all()
        begun += int(begins.sum())
    assert begun >= 40


def test_examples_fill_nearly_all_of_a_window(corpus: Corpus, vocabulary: Vocabulary) -> None:
    markers = vocabulary.markers
    options = ExampleOptions(fim_rate=1.0, snippet_rate=0.0, piece_rate=0.0)
    made = Windows(corpus, vocabulary, options, length=512, seed=0)
    in_examples = 0
    for index in range(50):
        ids = made[index].ids.tolist()
        last = max((place for place, token in enumerate(ids) if token == markers.middle), default=0)
        in_examples += ids.index(markers.end_of_text, last) + 1 if last else 0
    assert in_examples > 0.95 * 50 * 512


def test_without_fill_in_the_middle_there_are_no_markers(corpus: Corpus, vocabulary: Vocabulary) -> None:
    made = windows(corpus, vocabulary, fim_rate=0.0, fragment_rate=0.0)
    for index in range(20):
        assert vocabulary.markers.middle not in made[index].ids


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_walks_over_the_whole_corpus(corpus: Corpus, vocabulary: Vocabulary, epoch: int) -> None:
    made = windows(corpus, vocabulary, fim_rate=0.0, fragment_rate=0.0)
    epoch_windows = range(epoch * made.windows_per_epoch, (epoch + 1) * made.windows_per_epoch)
    text = "".join(vocabulary.decode(made[index].ids.tolist()) for index in epoch_windows)
    names = {line for index in range(len(corpus)) for line in corpus.document(index).splitlines() if "def " in line}
    # Slots hold about a window's worth of text: what is over is cut off.
    assert sum(name in text for name in names) > 0.75 * len(names)


def test_prompts_are_learned_only_if_the_options_say_so(corpus: Corpus, vocabulary: Vocabulary) -> None:
    markers = vocabulary.markers
    for index in range(5):
        window = windows(corpus, vocabulary, fragment_rate=0.0, context_fragment_rate=0.0)[index]
        assert np.array_equal(window.learned, ~window.begins)
    made = windows(corpus, vocabulary, fim_rate=1.0, prompt_loss=False)
    learned = 0
    for index in range(20):
        ids, mask, begins = made[index]
        assert not mask[np.isin(ids, [markers.prefix, markers.suffix, markers.middle])].any()
        assert mask[(ids == markers.end_of_text) & ~begins].all()
        learned += int(mask.sum())
    assert 0.05 * 20 * LENGTH < learned < 0.95 * 20 * LENGTH


SHARD_LENGTH = 100  # no multiple of 8: bits of two windows do not share a byte


@pytest.fixture
def source(corpus_folder: Path) -> WindowSource:
    options = ExampleOptions(snippet_rate=0.5, symbol_rate=0.5, later_name_rate=0.2, shortest_fragment=2)
    return WindowSource(corpus_folder, options, seed=3)


def test_a_shard_has_the_windows_as_they_are(source: WindowSource, tmp_path: Path) -> None:
    windows = source.windows(SHARD_LENGTH)
    shard = read_shard(make_shard(source, SHARD_LENGTH, 5, 4, tmp_path))
    for row in range(4):
        for field, expected in zip(shard, windows[5 + row], strict=True):
            assert np.array_equal(field[row], expected)
    assert shard.ids.base is not None  # mapped, not read
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_several_processes_make_the_bytes_of_one_thread(source: WindowSource, tmp_path: Path) -> None:
    made: list[list[bytes]] = []
    for processes in (0, 1, 3):
        with WindowMakers(source, processes) as makers:
            short, long = makers.sequence(SHARD_LENGTH, 0, 2, 2), makers.sequence(64, 7, 3, 6)
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
    code = "import sys, midfill_lab.training.windows; print({'torch', 'transformers'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


KILLED = """
import os, signal, sys
from pathlib import Path
from midfill_lab.training.windows import WindowMakers, WindowSource
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
    with subprocess.Popen([sys.executable, script, corpus_folder], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        told = process.stdout.read()  # until the last process that could write to it has ended
    assert told.split()
