"""Tasks of an evaluation: a text with a middle to fill in, the cursor in it, and the prompt of each format.

They come from HumanEval-Infilling (Bavarian et al., arXiv 2207.14255), or are cut from folders of source files that the
model was not trained on, the same ones for the same seed.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from random import Random
from typing import Literal, get_args

from lsp_server.prompts.anchors import LINES_BACK, WindowBudget
from midfill_lab.training.sources import is_test, is_vendored, read_source, reason_to_drop
from protocol.errors import BadInput
from protocol.messages import Prompt

Split = Literal["single-line", "multi-line", "random-span", "random-span-light"]
Format = Literal["psm", "spm", "efim"]
Cut = Literal["given", "token", "character"]

SPLITS: tuple[Split, ...] = get_args(Split)
FORMATS: tuple[Format, ...] = get_args(Format)
CUTS: tuple[Cut, ...] = get_args(Cut)

TokenEnds = Callable[[str], list[int]]  # where the tokens of a text end, in characters
MIN_LINE_CHARS = 4
MOST_LINES = 8  # of a task with several
SPAN_CHARS = (8, 200)  # short spans as likely as long ones: the logarithm of their length is uniform


@dataclass(frozen=True, slots=True)
class Task:
    """A text as before, middle and after. `test` calls the completed text's functions and raises if one is wrong.

    The middle of whole lines ends before the last one's newline, which `after` begins with, as in an editor.
    """

    name: str
    split: Split
    before: str
    middle: str
    after: str
    test: str | None = None

    @property
    def is_of_lines(self) -> bool:
        """Whether the middle is one or several whole lines, without the last newline."""
        return self.split in ("single-line", "multi-line")


@dataclass(frozen=True, slots=True)
class Case:
    """A task whose middle has been typed up to the cursor; `expected` is the rest of it."""

    task: Task
    typed: str

    @property
    def expected(self) -> str:
        return self.task.middle[len(self.typed) :]

    @property
    def left_of_cursor(self) -> str:
        return self.task.before + self.typed

    def program(self, completion: str) -> str:
        """The completed text."""
        return f"{self.left_of_cursor}{completion}{self.task.after}\n"


def place_cursor(task: Task, cut: Cut, token_ends: TokenEnds, seed: int) -> Case:
    """The case of a task whose user has stopped typing at the cursor; the same place for the same seed.

    `given` is the beginning of the middle. In whole lines, `token` and `character` are any token boundary and any
    character of the first line's code. A random span begins at a random character already, so `character` does not
    move the cursor, and `token` moves it to the next token boundary. At least one character is left to complete.
    """
    middle = task.middle
    if cut == "given" or (cut == "character" and not task.is_of_lines):
        return Case(task, "")
    places = list(_code_of_first_line(middle)) if task.is_of_lines else list(range(len(middle)))
    if cut == "token":
        boundaries = _boundaries(task, token_ends)
        places = [place for place in places if place in boundaries]
    if not places:
        return Case(task, "")
    at = Random(f"{seed}/{cut}/{task.name}").choice(places) if task.is_of_lines else places[0]
    return Case(task, middle[:at])


def _code_of_first_line(middle: str) -> range:
    first = middle.partition("\n")[0]
    return range(len(first) - len(first.lstrip()), len(first))


def _boundaries(task: Task, token_ends: TokenEnds) -> set[int]:
    """Token boundaries in the middle, counted from its beginning, of the whole lines that it stands in."""
    head = task.before[task.before.rfind("\n") + 1 :]
    newline = task.after.find("\n")
    tail = task.after if newline < 0 else task.after[: newline + 1]
    return {end - len(head) for end in (0, *token_ends(head + task.middle + tail))}


def lay_prompt(case: Case, form: Format, budget: WindowBudget) -> Prompt:
    """The prompt of a case: PSM and SPM put all text left of the cursor into the prefix.

    EFIM lays its anchor as the language server does, at a line start some lines above the cursor; the text
    between is the increment. All formats show the model the same text.
    """
    left = _last_lines(case.left_of_cursor, budget.prefix_chars)
    after = _first_lines(case.task.after, budget.suffix_chars)
    if form == "efim":
        anchor = _anchor(left, budget.increment_chars // 2)
        return Prompt(left[:anchor], after, left[anchor:])
    return Prompt(left, after, order=form)


def _anchor(left: str, max_chars: int) -> int:
    """The line start at most LINES_BACK lines and `max_chars` above the end of `left`, at least its own line's."""
    start = left.rfind("\n") + 1
    for _ in range(LINES_BACK):
        above = left.rfind("\n", 0, max(0, start - 1)) + 1
        if len(left) - above > max_chars:
            break
        start = above
    return start


def _last_lines(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    newline = text.find("\n", len(text) - chars - 1)
    return text[newline + 1 :] if newline >= 0 else text[-chars:]


def _first_lines(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    newline = text.rfind("\n", 0, chars)
    return text[: newline + 1] if newline >= 0 else text[:chars]


# By the first part of a task's id, and by the name of its file.
KINDS: dict[str, Split] = {
    "SingleLineInfilling": "single-line",
    "MultiLineInfilling": "multi-line",
    "RandomSpanInfilling": "random-span",
    "RandomSpanInfillingLight": "random-span-light",
}
_FIELDS = ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test")


def read_benchmark(path: Path, *, as_published: bool = False) -> dict[Split, list[Task]]:
    """The tasks of a file, or of a folder with the benchmark's own file names; BadInput if there are none.

    `as_published` leaves the last newline of whole lines in the middle.
    """
    tasks: dict[Split, list[Task]] = {}
    for file in _files(path):
        for number, line in enumerate(_lines(file), 1):
            task = _task(line, f"{file}, line {number}", as_published=as_published)
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


def _task(line: str, where: str, *, as_published: bool) -> Task:
    try:
        record = json.loads(line)
        task_id, entry_point, prompt, suffix, solution, test = (str(record[field]) for field in _FIELDS)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{where}: not a task of HumanEval-Infilling: {error!r}") from error
    kind = task_id.partition("/")[0]
    if kind not in KINDS:
        raise BadInput(f"{where}: {task_id} is not supported: choose tasks of {', '.join(KINDS)}")
    task = Task(task_id, KINDS[kind], prompt, solution, suffix, f"{test}\ncheck({entry_point})")
    if task.is_of_lines and solution.endswith("\n") and not as_published:
        return replace(task, middle=solution[:-1], after="\n" + suffix)
    return task


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
