"""Recognizes files with text of a benchmark that the model will be measured on."""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from midfill_lab.training.errors import CorpusError

SHARED_LINES = 3
MIN_SHARED_CHARS = 50
_PARTS = ("prompt", "canonical_solution", "suffix")  # of HumanEval and HumanEval-Infilling


class Decontamination:
    """Remembers the passages of a benchmark: runs of `SHARED_LINES` filled lines, without their indentation."""

    def __init__(self, files: Sequence[Path] = ()) -> None:
        """Read benchmark files: JSON lines, also with gzip, whose records have the fields of HumanEval.

        Raises:
            CorpusError: a file cannot be read, or has no such records.
        """
        self._passages: set[tuple[str, ...]] = set()
        for file in files:
            texts = ("".join(str(record.get(part, "")) for part in _PARTS) for record in _records(file))
            found = {passage for text in texts for passage in _passages(text)}
            if not found:
                raise CorpusError(f"{file} has no records with {', '.join(_PARTS)}")
            self._passages |= found

    def is_contaminated(self, text: str) -> bool:
        """Whether `text` has a passage of the benchmark."""
        return bool(self._passages) and any(passage in self._passages for passage in _passages(text))


def _records(file: Path) -> Iterator[dict[str, Any]]:
    try:
        raw = file.read_bytes()
        lines = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode("utf-8").splitlines()
        for line in lines:
            record = json.loads(line)
            if isinstance(record, dict):
                yield record
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CorpusError(f"{file} cannot be read as a benchmark: {error}") from error


def _passages(text: str) -> Iterator[tuple[str, ...]]:
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    for passage in zip(*(lines[first:] for first in range(SHARED_LINES)), strict=False):
        if sum(map(len, passage)) >= MIN_SHARED_CHARS:
            yield passage
