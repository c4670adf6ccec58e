"""Builds a corpus: chooses the packages to train on and to hold out, and the files to keep."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from inference.training.corpus.corpus import Manifest, PackageRecord, Split
from inference.training.corpus.duplicates import DuplicateFilter
from inference.training.corpus.environments import STANDARD_LIBRARY, Package, SourceFile
from inference.training.corpus.source_rules import is_test, is_vendored, read_source, reason_to_drop
from inference.training.errors import CorpusError


@dataclass(frozen=True)
class CollectOptions:
    """How a corpus is collected.

    Attributes:
        hold_out: canonical names of packages to hold out; empty lets `hold_out_count` choose.
        hold_out_count: how many medium-size packages to hold out, those with the smallest name hash.
        package_bytes: most bytes taken under one package's name, so that none dominates.
        test_share: largest share of `package_bytes` for tests.
    """

    hold_out: tuple[str, ...] = ()
    hold_out_count: int = 6
    package_bytes: int = 8_000_000
    test_share: float = 0.15

    medium_bytes: tuple[int, int] = (150_000, 1_500_000)


@dataclass
class _Taken:
    package: Package
    texts: list[str] = field(default_factory=list[str])
    bytes: int = 0


class _Budget:
    """Remaining bytes per package name, over all environments."""

    def __init__(self, options: CollectOptions) -> None:
        self._options = options
        self._bytes, self._test_bytes = Counter[str](), Counter[str]()

    def allows(self, name: str, size: int, *, test: bool) -> bool:
        limit = self._options.package_bytes
        over_tests = test and self._test_bytes[name] + size > self._options.test_share * limit
        return self._bytes[name] + size <= limit and not over_tests

    def spend(self, name: str, size: int, *, test: bool) -> None:
        self._bytes[name] += size
        self._test_bytes[name] += size if test else 0


def collect(packages: Iterable[Package], options: CollectOptions) -> tuple[dict[Split, Sequence[str]], Manifest]:
    """Choose held-out packages and collect the texts of both splits.

    A package in several environments counts once for the hold-out. Held-out packages are collected last, so that they
    lose the files that are also in the training split.

    Raises:
        CorpusError: nothing is left to train on, or a package to hold out is missing.
    """
    listed = list(packages)
    permitted = [package for package in listed if package.licence.permitted and package.files]
    held_out = _choose_held_out(permitted, options)
    budget, duplicates, dropped = _Budget(options), DuplicateFilter(), Counter[str]()
    taken: dict[Split, list[_Taken]] = {"train": [], "held_out": []}
    for package in sorted(permitted, key=lambda package: package.name in held_out):
        split: Split = "held_out" if package.name in held_out else "train"
        taken[split].append(_take(package, budget, duplicates, dropped))
    if not any(one.texts for one in taken["train"]):
        raise CorpusError(f"none of {len(listed)} packages has source under a permissive licence to train on")
    records = [_record(one, split) for split, several in taken.items() for one in several if one.texts]
    refused = [_record(_Taken(package), "refused") for package in listed if not package.licence.permitted]
    texts: dict[Split, Sequence[str]] = {
        split: [text for one in several for text in one.texts] for split, several in taken.items()
    }
    return texts, Manifest(tuple(records + refused), dict(sorted(dropped.items())))


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


def _take(package: Package, budget: _Budget, duplicates: DuplicateFilter, dropped: Counter[str]) -> _Taken:
    """Take files within the budget, in a random order that is the same on every machine."""
    taken = _Taken(package)
    for file in sorted(package.files, key=lambda file: _name_hash(file.path.as_posix())):
        text, reason = _read_if_wanted(file)
        if text is None:
            dropped[reason] += 1
            continue
        size, test = len(text.encode()), is_test(file.path)
        if not budget.allows(package.name, size, test=test):
            dropped["share of package used up"] += 1
        elif duplicate := duplicates.reason_to_drop(text):
            dropped[duplicate] += 1
        else:
            duplicates.add(text)
            budget.spend(package.name, size, test=test)
            taken.texts.append(text)
            taken.bytes += size
    return taken


def _read_if_wanted(file: SourceFile) -> tuple[str | None, str]:
    """The file's text, or None and the rule that drops it."""
    if is_vendored(file.path):
        return None, "vendored"
    text = read_source(file.location.read_bytes())
    if text is None:
        return None, "not UTF-8 text"
    reason = reason_to_drop(text)
    return (None, reason) if reason else (text, "")


def _record(taken: _Taken, role: str) -> PackageRecord:
    package = taken.package
    return PackageRecord(package.name, package.version, package.licence.name, role, len(taken.texts), taken.bytes)


def _name_hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()
