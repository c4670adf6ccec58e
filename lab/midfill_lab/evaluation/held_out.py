"""Tasks cut from folders of source files that the model was not trained on, the same ones for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from random import Random

from midfill_lab.evaluation.tasks import Split, Task
from midfill_lab.training.corpus.source_rules import is_test, is_vendored, read_source, reason_to_drop
from protocol.errors import BadInput

MIN_LINE_CHARS = 4
MOST_LINES = 8  # of a task with several
SPAN_CHARS = (8, 200)  # short spans as likely as long ones: the logarithm of their length is uniform


def cut_files(folders: list[Path], split: Split, count: int, seed: int) -> list[Task]:
    """At most `count` tasks, spread evenly over the files; BadInput if no file can be used.

    `split` is not random-span-light, which is a part of the benchmark.
    The files are those that training would use: Python in UTF-8, neither tests nor generated nor copies of others.
    """
    texts = {name: text for folder in folders for name, text in _read(folder).items()}
    if not texts:
        raise BadInput(f"no usable Python files in {', '.join(map(str, folders))}")
    each = -(-count // len(texts))
    tasks: list[Task] = []
    for name, text in sorted(texts.items()):
        rng = Random(f"{seed}/{split}/{name}")
        tasks += _CUTTERS[split](name, text, each, rng)
    chosen = Random(f"{seed}/{split}").sample(tasks, min(count, len(tasks)))
    return sorted(chosen, key=lambda task: task.name)


def source_texts(folder: Path, suffixes: Collection[str]) -> dict[str, str]:
    """The texts of a folder's source files by their paths: no tests, no copies of others, nothing generated."""
    texts = {}
    for file in sorted(folder.rglob("*")):
        path = PurePosixPath(file.relative_to(folder).as_posix())
        if file.suffix not in suffixes or is_test(path) or is_vendored(path) or not file.is_file():
            continue
        try:
            text = read_source(file.read_bytes())
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}") from error
        if text is not None and reason_to_drop(text) is None:
            texts[str(path)] = text
    return texts


def _read(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder")
    return {f"{folder.name}/{path}": text for path, text in source_texts(folder, (".py",)).items()}


def _cut_lines(name: str, text: str, count: int, rng: Random) -> list[Task]:
    lines = text.splitlines(keepends=True)
    filled = _filled(lines)
    return [_of_lines(name, lines, number, number) for number in rng.sample(filled, min(count, len(filled)))]


def _cut_several_lines(name: str, text: str, count: int, rng: Random) -> list[Task]:
    """From 2 to MOST_LINES lines that begin and end with code."""
    lines = text.splitlines(keepends=True)
    filled = _filled(lines)
    tasks = []
    for first in rng.sample(filled, min(count, len(filled))):
        wanted = first + rng.randint(1, MOST_LINES - 1)
        lasts = [number for number in filled if first < number <= wanted]
        if lasts:
            tasks.append(_of_lines(name, lines, first, lasts[-1]))
    return tasks


def _filled(lines: list[str]) -> list[int]:
    """The numbers of the lines that are worth filling in."""
    return [number for number, line in enumerate(lines) if len(line.strip()) >= MIN_LINE_CHARS]


def _of_lines(name: str, lines: list[str], first: int, last: int) -> Task:
    """The task of filling in the lines from `first` to `last`; its name counts them from 1."""
    middle = "".join(lines[first : last + 1]).removesuffix("\n")
    before, after = "".join(lines[:first]), "\n" + "".join(lines[last + 1 :])
    if first == last:
        return Task(f"{name}:{first + 1}", "single-line", before, middle, after)
    return Task(f"{name}:{first + 1}-{last + 1}", "multi-line", before, middle, after)


def _cut_spans(name: str, text: str, count: int, rng: Random) -> list[Task]:
    shortest, longest = map(math.log, SPAN_CHARS)
    tasks: dict[str, Task] = {}
    for _ in range(count):
        length = round(math.exp(rng.uniform(shortest, longest)))
        start = rng.randrange(len(text))
        middle = text[start : start + length]
        if middle.strip():
            place = f"{name}@{start}+{len(middle)}"
            tasks[place] = Task(place, "random-span", text[:start], middle, text[start + length :])
    return list(tasks.values())


_CUTTERS: dict[Split, Callable[[str, str, int, Random], list[Task]]] = {
    "single-line": _cut_lines,
    "multi-line": _cut_several_lines,
    "random-span": _cut_spans,
}
