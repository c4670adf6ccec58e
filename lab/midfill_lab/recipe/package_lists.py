"""Owns the lists of packages, pinned by version, that a corpus is downloaded from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from midfill_lab.training.errors import CorpusError

Registry = Literal["pypi", "npm", "debian"]
REGISTRIES: tuple[Registry, ...] = get_args(Registry)
LISTS = Path(__file__).with_name("packages")
_HELD_OUT = "held-out"


@dataclass(frozen=True)
class Pinned:
    """One package of a list."""

    name: str
    version: str
    held_out: bool = False


def read_list(registry: Registry, folder: Path = LISTS) -> tuple[Pinned, ...]:
    """The packages of a registry: a line each, `name version`, and `held-out` for those to evaluate on.

    Raises:
        CorpusError: the list is missing, or a line has another form.
    """
    path = folder / f"{registry}.txt"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CorpusError(f"no list of packages at {path}: {error.strerror}") from error
    found: list[Pinned] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in (2, 3) or words[2:] not in ([], [_HELD_OUT]):
            raise CorpusError(f"{path}, line {number}: {line!r} is not of the form NAME VERSION [{_HELD_OUT}]")
        found.append(Pinned(words[0], words[1], held_out=len(words) == 3))
    return tuple(found)
