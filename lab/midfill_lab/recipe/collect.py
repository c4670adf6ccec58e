"""Builds a corpus: chooses the packages to train on and to hold out, and the files to keep, without a benchmark's."""

import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from midfill_lab.recipe.registries import STANDARD_LIBRARY, Package, SourceFile
from midfill_lab.training.corpus import Document, Manifest, PackageRecord, Split, family_of
from midfill_lab.training.options import CorpusError
from midfill_lab.training.sources import DuplicateFilter, has_copyleft_notice, is_test, is_vendored, read_source, reason_to_drop

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


@dataclass(frozen=True)
class CollectOptions:
    """How a corpus is collected.

    Attributes:
        hold_out: canonical names of packages to hold out; empty lets `hold_out_count` choose.
        hold_out_count: how many medium-size packages to hold out, those with the smallest name hash.
        package_bytes: most bytes taken under one package's name, so that none dominates.
        test_share: largest share of `package_bytes` for tests.
        other_share: largest share of `package_bytes` for files in other languages than Python and JavaScript.
    """

    hold_out: tuple[str, ...] = ()
    hold_out_count: int = 6
    package_bytes: int = 8_000_000
    test_share: float = 0.15
    other_share: float = 1.0
    medium_bytes: tuple[int, int] = (150_000, 1_500_000)


@dataclass
class _Taken:
    package: Package
    documents: list[Document] = field(default_factory=list[Document])
    bytes: int = 0


class _Budget:
    """Remaining bytes per package name, over all environments."""

    def __init__(self, options: CollectOptions) -> None:
        limit = options.package_bytes
        self._limits = {"any": limit, "test": options.test_share * limit, "other": options.other_share * limit}
        self._bytes = Counter[tuple[str, str]]()

    def take(self, name: str, size: int, kinds: Sequence[str]) -> bool:
        """Take `size` bytes of the package for a file of some kinds, unless one of them would exceed its limit."""
        if any(self._bytes[name, kind] + size > self._limits[kind] for kind in kinds):
            return False
        self._bytes.update({(name, kind): size for kind in kinds})
        return True


def collect(
    packages: Iterable[Package], options: CollectOptions, benchmarks: Decontamination | None = None
) -> tuple[dict[Split, Sequence[Document]], Manifest]:
    """Choose held-out packages and collect the files of both splits, without those that have text of a benchmark.

    A package in several environments counts once for the hold-out. Held-out packages are collected last, so that they
    lose the files that are also in the training split.

    Raises:
        CorpusError: nothing is left to train on, or a package to hold out is missing.
    """
    listed = list(packages)
    permitted = [package for package in listed if package.licence.permitted and package.files]
    held_out = _choose_held_out(permitted, options)
    collector = _Collector(options, benchmarks or Decontamination())
    taken: dict[Split, list[_Taken]] = {"train": [], "held_out": []}
    for package in sorted(permitted, key=lambda package: package.name in held_out):
        split: Split = "held_out" if package.name in held_out else "train"
        taken[split].append(collector.take(package))
    if not any(one.documents for one in taken["train"]):
        raise CorpusError(f"none of {len(listed)} packages has source under a permissive licence to train on")
    records = [_record(one, split) for split, several in taken.items() for one in several if one.documents]
    refused = [_record(_Taken(package), "refused") for package in listed if not package.licence.permitted]
    documents: dict[Split, Sequence[Document]] = {
        split: [document for one in several for document in one.documents] for split, several in taken.items()
    }
    return documents, Manifest(tuple(records + refused), dict(sorted(collector.dropped.items())))


def _choose_held_out(packages: Sequence[Package], options: CollectOptions) -> frozenset[str]:
    names = {package.name for package in packages}
    if missing := set(options.hold_out) - names:
        raise CorpusError(f"cannot hold out {', '.join(sorted(missing))}: not among the permitted packages")
    if options.hold_out:
        return frozenset(options.hold_out)
    low, high = options.medium_bytes
    sizes = {package.name: sum(file.location.stat().st_size for file in package.files) for package in packages}
    medium = (name for name, size in sizes.items() if low <= size <= high and name != STANDARD_LIBRARY)
    return frozenset(sorted(medium, key=_name_hash)[: options.hold_out_count])


class _Collector:
    """Takes the files of one package after another, and counts those it drops by reason."""

    def __init__(self, options: CollectOptions, benchmarks: Decontamination) -> None:
        self._budget, self._duplicates, self._benchmarks = _Budget(options), DuplicateFilter(), benchmarks
        self.dropped = Counter[str]()

    def take(self, package: Package) -> _Taken:
        """Take files within the budget, in a random order that is the same on every machine."""
        taken = _Taken(package)
        for file in sorted(package.files, key=lambda file: _name_hash(file.path.as_posix())):
            text, reason = self._read_if_wanted(file)
            if text is None:
                self.dropped[reason] += 1
                continue
            size = len(text.encode())
            if duplicate := self._duplicates.reason_to_drop(text):
                self.dropped[duplicate] += 1
            elif not self._budget.take(package.name, size, _kinds(file.path)):
                self.dropped["share of package used up"] += 1
            else:
                self._duplicates.add(text)
                taken.documents.append(Document(text, package.name, file.path.as_posix()))
                taken.bytes += size
        return taken

    def _read_if_wanted(self, file: SourceFile) -> tuple[str | None, str]:
        """The file's text, or None and the rule that drops it."""
        if is_vendored(file.path):
            return None, "vendored"
        text = read_source(file.location.read_bytes())
        if text is None:
            return None, "not UTF-8 text"
        if reason := reason_to_drop(text):
            return None, reason
        if has_copyleft_notice(text):
            return None, "copyleft notice"
        return (None, "text of a benchmark") if self._benchmarks.is_contaminated(text) else (text, "")


def _kinds(path: PurePath) -> list[str]:
    """The kinds of files that a file counts as."""
    other = family_of(path.name) == "other"
    return ["any", *(["test"] if is_test(path) else []), *(["other"] if other else [])]


def _record(taken: _Taken, role: str) -> PackageRecord:
    package = taken.package
    return PackageRecord(package.name, package.version, package.licence.name, role, len(taken.documents), taken.bytes)


def _name_hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()
