"""Reads HumanEval-Infilling (Bavarian et al., arXiv 2207.14255): its files into tasks with their tests."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import replace
from pathlib import Path

from midfill_lab.evaluation.tasks import Split, Task
from protocol.errors import BadInput

# By the first part of a task's id, and by the name of its file.
KINDS: dict[str, Split] = {
    "SingleLineInfilling": "single-line",
    "MultiLineInfilling": "multi-line",
    "RandomSpanInfilling": "random-span",
    "RandomSpanInfillingLight": "random-span-light",
}
_FIELDS = ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test")


def read_benchmark(path: Path) -> dict[Split, list[Task]]:
    """The tasks of a file, or of a folder with the benchmark's own file names; BadInput if there are none."""
    tasks: dict[Split, list[Task]] = {}
    for file in _files(path):
        for number, line in enumerate(_lines(file), 1):
            task = _task(line, f"{file}, line {number}")
            tasks.setdefault(task.split, []).append(task)
    if not tasks:
        raise BadInput(f"{path} has no tasks of HumanEval-Infilling")
    return tasks


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    names = [f"HumanEval-{kind}.jsonl" for kind in KINDS]
    found = [next((path / name for name in (f"{stem}.gz", stem) if (path / name).is_file()), None) for stem in names]
    if not any(found):
        raise BadInput(f"{path} has neither {' nor '.join(names)} (nor these with .gz)")
    return [file for file in found if file is not None]


def _lines(file: Path) -> list[str]:
    try:
        raw = file.read_bytes()
        if file.suffix == ".gz":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from error


def _task(line: str, where: str) -> Task:
    try:
        record = json.loads(line)
        task_id, entry_point, prompt, suffix, solution, test = (str(record[field]) for field in _FIELDS)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{where}: not a task of HumanEval-Infilling: {error!r}") from error
    kind = task_id.partition("/")[0]
    if kind not in KINDS:
        raise BadInput(f"{where}: {task_id} is not supported: choose tasks of {', '.join(KINDS)}")
    task = Task(task_id, KINDS[kind], prompt, solution, suffix, f"{test}\ncheck({entry_point})")
    if task.is_of_lines and solution.endswith("\n"):
        return replace(task, middle=solution[:-1], after="\n" + suffix)
    return task
