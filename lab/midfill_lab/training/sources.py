"""Reads the files of the user's folders: those to train on, to hold out, and to leave out, by rules with reasons."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from lsp_server.exclusion.exclusion import Exclusion
from midfill_lab.training.corpus import Document, Manifest, PackageRecord, Split
from protocol.errors import BadInput

MIN_BYTES = 200
MAX_BYTES = 400_000
MAX_LINE_CHARS = 400
MAX_MEAN_LINE_CHARS = 90
MIN_LETTER_SHARE = 0.45
MAX_REPEATED_LINE_SHARE = 0.5

HEADER_LINES = 30

_VENDORED = frozenset(
    {
        "_vendor", "_vendored", "_vendored_packages", "extern", "external", "externals", "third_party", "thirdparty",
        "3rdparty", "vendor", "node_modules",
    }
)  # fmt: skip
_TESTS = frozenset({"test", "tests", "testing", "_tests", "idle_test", "__tests__", "spec", "specs", "testdata"})
_TEST_NAMES = re.compile(r"test_.*|.*([._-]test|[._-]spec|Tests?|_unittest)\.\w+")
_COPYLEFT = re.compile(r"GNU (?:Lesser |Library |Affero )?General Public|\b[AL]?GPL(?:v?[23])?\b|Mozilla Public License")
_COMPILED = re.compile(
    r"""defineProperty\(exports, ["']__esModule|\b__(?:awaiter|extends|decorate|importDefault|toESM|commonJS|webpack)"""
    r"""|_interopRequire|_createForOfIterator|sourceMappingURL=|^/\*! For license""",
    re.MULTILINE,
)
_GENERATED = re.compile(
    r"@generated|(?:auto-?|automatically )generated|generated (?:by|from)|do not (?:edit|modify)|file was generated",
    re.IGNORECASE,
)
MAX_SEEN_SHARE = 0.6
MIN_LINE_CHARS = 20


def is_vendored(path: PurePath) -> bool:
    """Whether a file is another project's copy: the package's own licence says nothing about it."""
    return any(part in _VENDORED for part in path.parts)


def is_test(path: PurePath) -> bool:
    """Whether a file is a test, judged by its folders and its name."""
    in_tests = any(part in _TESTS for part in path.parts[:-1])
    return in_tests or _TEST_NAMES.fullmatch(path.name) is not None


def has_copyleft_notice(text: str) -> bool:
    """Whether a file's header names a licence that is not permissive, whatever its package's metadata says."""
    return _COPYLEFT.search("\n".join(text.splitlines()[:HEADER_LINES])) is not None


def read_source(raw: bytes) -> str | None:
    """Decode a file as UTF-8 with newlines as `\\n`; None if it is not UTF-8 text."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    text = text.replace("\r\n", "\n")
    if "\r" in text or "\0" in text:
        return None
    return text if text.endswith("\n") else text + "\n"


def reason_to_drop(text: str) -> str | None:
    """Name the first rule that a decoded file breaks; None for a file worth keeping."""
    if not MIN_BYTES <= len(text.encode()) <= MAX_BYTES:
        return "size"
    lines = text.splitlines()
    if max(map(len, lines)) > MAX_LINE_CHARS:
        return "long lines"
    filled = [line.strip() for line in lines if line.strip()]
    if not filled or sum(map(len, filled)) / len(filled) > MAX_MEAN_LINE_CHARS:
        return "long lines"
    if _GENERATED.search("\n".join(lines[:15])):
        return "generated"
    if _COMPILED.search(text):
        return "compiled"
    if sum(map(str.isalpha, text)) < MIN_LETTER_SHARE * sum(map(len, filled)):
        return "data"
    long_lines = [line for line in filled if len(line) > 10]
    if len(set(long_lines)) < (1 - MAX_REPEATED_LINE_SHARE) * len(long_lines):
        return "repetitive"
    return None


class DuplicateFilter:
    """Remembers every collected file by its content and by its longer lines.

    A cheap substitute for MinHash: a file is a near duplicate if more than `MAX_SEEN_SHARE` of its distinct lines of at
    least `MIN_LINE_CHARS` characters are in files collected before. This finds other versions of a file, and files
    assembled from several.
    """

    def __init__(self) -> None:
        self._contents: set[bytes] = set()
        self._lines: set[int] = set()

    def reason_to_drop(self, text: str) -> str | None:
        """The kind of duplicate that `text` is of earlier texts; None if it is new."""
        if _digest(text) in self._contents:
            return "duplicate"
        lines = _line_hashes(text)
        if lines and len(lines & self._lines) > MAX_SEEN_SHARE * len(lines):
            return "near duplicate"
        return None

    def add(self, text: str) -> None:
        self._contents.add(_digest(text))
        self._lines |= _line_hashes(text)


def _digest(text: str) -> bytes:
    return hashlib.blake2b("\n".join(map(str.rstrip, text.splitlines())).encode(), digest_size=16).digest()


def _line_hashes(text: str) -> set[int]:
    stripped = {line.strip() for line in text.splitlines()}
    # A stable hash, not hash(): which files are dropped must not depend on PYTHONHASHSEED.
    return {
        int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest(), "little")
        for line in stripped
        if len(line) >= MIN_LINE_CHARS
    }


_NO_SOURCE = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__"})
_MEANINGS = {
    "size": f"not a file of {MIN_BYTES:,} to {MAX_BYTES:,} bytes",
    "long lines": "has lines like minified code or prose",
    "generated": "says that it was generated",
    "data": "contains hardly any letters",
    "repetitive": "repeats the same lines",
    "compiled": "is compiled from another language or version",
    "duplicate": "identical to another file",
    "near duplicate": "shares most of its lines with other files",
}
_KEEPS_FOR_A_RUN_S = 3600.0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A text of the user's; `name` begins with that of its folder."""

    folder: Path
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not trained on: the kind of reason, for counting, and the reason itself."""

    path: Path
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Sources:
    """The files found, each in one of three groups."""

    train: tuple[SourceFile, ...]
    held_out: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...]

    def documents(self) -> dict[Split, Sequence[Document]]:
        """The files of both splits, those of a folder together."""
        splits: dict[Split, tuple[SourceFile, ...]] = {"train": self.train, "held_out": self.held_out}
        return {
            split: [Document(file.text, str(file.folder), file.name) for file in sorted(files, key=_by_folder)]
            for split, files in splits.items()
        }

    def manifest(self) -> Manifest:
        """The manifest of a corpus of these files: a record per folder and split."""
        splits: dict[Split, tuple[SourceFile, ...]] = {"train": self.train, "held_out": self.held_out}
        records = [
            _record(folder, split, [file for file in files if file.folder == folder])
            for split, files in splits.items()
            for folder in dict.fromkeys(file.folder for file in files)
        ]
        kinds = Counter(file.kind for file in self.left_out)
        return Manifest(tuple(records), dict(sorted(kinds.items())))


def read_sources(places: Sequence[Path], held_out_share: float) -> Sources:
    """Read folders, with all that lies below them, and files.

    Left out are files that ignore files or the list of secrets exclude, files that are not UTF-8 text, and generated,
    minified, repetitive or duplicate files. Which files are held out depends on their names alone.

    Raises:
        BadInput: a place is not there, a file that was named cannot be trained on, or nothing is left.
    """
    folders = [place if place.is_dir() else place.parent for place in map(_existing, places)]
    exclusion = Exclusion([folder.as_uri() for folder in folders], time.monotonic, _KEEPS_FOR_A_RUN_S)
    duplicates = DuplicateFilter()
    kept: dict[Path, SourceFile] = {}
    left_out: list[LeftOut] = []
    for place, folder in zip(map(_existing, places), folders, strict=True):
        for path in [place] if place.is_file() else _files_below(place):
            found = _read(path, folder, exclusion, duplicates)
            if isinstance(found, SourceFile):
                kept[path] = found
            elif path == place:
                raise BadInput(f"{path} cannot be used for training: {found.reason}")
            else:
                left_out.append(found)
    if len(kept) < 2:
        where = ", ".join(map(str, places))
        raise BadInput(f"training needs at least two files, one of them held out: {where} has fewer ({_examples(left_out)})")
    train, held_out = _split(list(kept.values()), held_out_share)
    return Sources(tuple(train), tuple(held_out), tuple(left_out))


def _by_folder(file: SourceFile) -> str:
    return str(file.folder)


def _existing(place: Path) -> Path:
    if not place.exists():
        raise BadInput(f"no such folder: {place}")
    return place.resolve()


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _NO_SOURCE)
        yield from (Path(parent, name) for name in sorted(names))


def _read(path: Path, folder: Path, exclusion: Exclusion, duplicates: DuplicateFilter) -> SourceFile | LeftOut:
    relative = path.relative_to(folder)
    if excluded := exclusion.reason(path.as_uri()):
        return LeftOut(path, "secret" if "list of secrets" in excluded else "ignored", excluded)
    if is_vendored(relative):
        return LeftOut(path, "vendored", "in a folder for copies of other projects")
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return LeftOut(path, "size", _MEANINGS["size"])
        raw = path.read_bytes()
    except OSError as error:
        return LeftOut(path, "unreadable", f"cannot be read: {error.strerror}")
    text = read_source(raw)
    if text is None:
        return LeftOut(path, "not text", "binary: contains NUL bytes" if b"\0" in raw else "not UTF-8 text")
    if kind := reason_to_drop(text) or duplicates.reason_to_drop(text):
        return LeftOut(path, kind, _MEANINGS.get(kind, kind))
    duplicates.add(text)
    return SourceFile(folder, f"{folder.name}/{relative.as_posix()}", text)


def _split(files: list[SourceFile], share: float) -> tuple[list[SourceFile], list[SourceFile]]:
    """The files to train on and those to hold out, at least one of each, in the order of their names' hashes."""
    ordered = sorted(files, key=lambda file: hashlib.blake2b(file.name.encode(), digest_size=8).digest())
    count = min(len(files) - 1, max(1, round(share * len(files))))
    return ordered[count:], ordered[:count]


def _record(folder: Path, split: Split, files: list[SourceFile]) -> PackageRecord:
    return PackageRecord(folder.name, "", "", split, len(files), sum(len(file.text.encode()) for file in files))


def _examples(left_out: Sequence[LeftOut], most: int = 3) -> str:
    if not left_out:
        return "nothing left out"
    named = [f"{file.path} ({file.reason})" for file in left_out[:most]]
    return f"{len(left_out)} left out, such as " + ", ".join(named)
