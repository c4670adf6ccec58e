"""Tasks cut from folders of source files that the model was not trained on, the same ones for the same seed."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

from inference.training.corpus.source_rules import is_test, is_vendored, read_source, reason_to_drop
from midfill.evaluation.tasks import Split, Task
from protocol.errors import BadInput

MIN_LINE_CHARS = 4
SPAN_CHARS = (8, 200)  # short spans as likely as long ones: the logarithm of their length is uniform


def cut_files(folders: list[Path], split: Split, count: int, seed: int) -> list[Task]:
    """At most `count` tasks, spread evenly over the files; BadInput if no file can be used.

    The files are those that training would use: Python in UTF-8, neither tests nor generated nor copies of others.
    """
    texts = {name: text for folder in folders for name, text in _read(folder).items()}
    if not texts:
        raise BadInput(f"no usable Python files in {', '.join(map(str, folders))}")
    each = -(-count // len(texts))
    tasks: list[Task] = []
    for name, text in sorted(texts.items()):
        rng = Random(f"{seed}/{split}/{name}")
        cut = _cut_lines if split == "single-line" else _cut_spans
        tasks += cut(name, text, each, rng)
    chosen = Random(f"{seed}/{split}").sample(tasks, min(count, len(tasks)))
    return sorted(chosen, key=lambda task: task.name)


def _read(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder")
    texts = {}
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder)
        if is_test(path) or is_vendored(path) or not file.is_file():
            continue
        try:
            text = read_source(file.read_bytes())
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}") from error
        if text is not None and reason_to_drop(text) is None:
            texts[f"{folder.name}/{path.as_posix()}"] = text
    return texts


def _cut_lines(name: str, text: str, count: int, rng: Random) -> list[Task]:
    lines = text.splitlines(keepends=True)
    filled = [number for number, line in enumerate(lines) if len(line.strip()) >= MIN_LINE_CHARS]
    tasks = []
    for number in rng.sample(filled, min(count, len(filled))):
        middle = lines[number].removesuffix("\n")
        before, after = "".join(lines[:number]), "\n" + "".join(lines[number + 1 :])
        tasks.append(Task(f"{name}:{number + 1}", "single-line", before, middle, after))
    return tasks


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
