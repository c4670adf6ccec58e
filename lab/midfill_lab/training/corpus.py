"""Owns a corpus on disk: one file of texts per split, their boundaries and languages, and a manifest."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midfill_lab.training.options import CorpusError

Family = Literal["python", "web", "other"]

PYTHON = frozenset({".py"})
WEB = frozenset({".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs", ".svelte", ".vue"})
OTHER = frozenset(
    {
        ".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".go", ".rs", ".java", ".lua", ".sh", ".bash", ".rb",
        ".php", ".zig", ".cs", ".kt", ".scala", ".swift",
    }
)  # fmt: skip
SUFFIXES = PYTHON | WEB | OTHER
Split = Literal["train", "held_out"]
_MANIFEST = "manifest.json"


def family_of(path: str) -> Family:
    """The family of languages that a file is measured with."""
    suffix = PurePath(path).suffix
    return "python" if suffix in PYTHON else "web" if suffix in WEB else "other"


@dataclass(frozen=True)
class PackageRecord:
    """The part of one package in the corpus; `role` is a split's name or `refused`."""

    name: str
    version: str
    licence: str
    role: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """The sources of a corpus, and the number of files that each rule dropped."""

    packages: tuple[PackageRecord, ...]
    dropped: dict[str, int]

    def of_role(self, role: str) -> tuple[PackageRecord, ...]:
        return tuple(package for package in self.packages if package.role == role)


class Document(NamedTuple):
    """A file of a package; the text ends in a newline."""

    text: str
    package: str
    path: str


class Corpus:
    """One split of a corpus, read through a memory map.

    Documents are UTF-8, end in a newline and lie one after the other in `<split>.bin`, those of a package together;
    `<split>.npy` holds their boundaries in bytes, int64 of shape [documents + 1], and `<split>.json` a list of
    [package, path].
    """

    def __init__(self, folder: Path, split: Split) -> None:
        """Open one split.

        Raises:
            CorpusError: the split is missing, empty or truncated.
        """
        try:
            self.boundaries: NDArray[np.int64] = np.load(folder / f"{split}.npy")
            # As a plain array on the map: slices of np.memmap are slow to make.
            self.bytes = np.asarray(np.memmap(folder / f"{split}.bin", dtype=np.uint8, mode="r"))
            origins: list[list[str]] = json.loads((folder / f"{split}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError) as error:
            raise CorpusError(f"no usable {split} corpus in {folder}: {error}") from error
        if len(self.bytes) != self.boundaries[-1]:
            raise CorpusError(f"{folder / f'{split}.bin'} has {len(self.bytes)} bytes, not {self.boundaries[-1]}")
        if len(origins) != len(self.boundaries) - 1:
            raise CorpusError(f"{folder / f'{split}.json'} names {len(origins)} files, not {len(self.boundaries) - 1}")
        self.folder, self.split = folder, split
        self.paths = tuple(path for _, path in origins)
        packages: dict[str, tuple[int, int]] = {}
        for index, (package, _) in enumerate(origins):
            packages[package] = packages.get(package, (index, index))[0], index + 1
        self._package_of = [packages[package] for package, _ in origins]

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    @property
    def num_bytes(self) -> int:
        return int(self.boundaries[-1])

    def package_of(self, index: int) -> range:
        """The documents of the same package, among them `index` itself."""
        return range(*self._package_of[index])

    def document(self, index: int) -> str:
        return self.lines_between(index, 0, int(self.boundaries[index + 1] - self.boundaries[index]))

    def lines_between(self, index: int, start: int, end: int) -> str:
        """The lines of a document that begin in `[start, end)`, counted in bytes from its beginning."""
        first, last = int(self.boundaries[index]), int(self.boundaries[index + 1])
        wanted = (first + start, min(first + end, last))
        begin, stop = np.searchsorted(self.line_starts, wanted).tolist()
        return self.text_between(int(self.line_starts[begin]), int(self.line_starts[stop]))

    def lines(self, index: int) -> range:
        """The lines of a document, as indices into `line_starts`."""
        first, last = np.searchsorted(self.line_starts, self.boundaries[index : index + 2]).tolist()
        return range(first, last)

    @cached_property
    def line_starts(self) -> NDArray[np.int64]:
        """Where each line of the split begins, in bytes, and where the last ends: [lines + 1].

        Every document begins a line, as each ends in a newline. A newline byte is never part of a longer UTF-8
        sequence, so that text between line starts always decodes.
        """
        return np.concatenate(([0], np.flatnonzero(self.bytes == ord("\n")) + 1))

    def text_between(self, start: int, end: int) -> str:
        """The text between two places of `line_starts`."""
        return self.bytes[start:end].tobytes().decode()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a corpus.

    Raises:
        CorpusError: the manifest is missing or of another version.
    """
    try:
        raw = json.loads((folder / _MANIFEST).read_text())
        return Manifest(tuple(PackageRecord(**package) for package in raw["packages"]), raw["dropped"])
    except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise CorpusError(f"no usable corpus manifest in {folder}: {error}") from error


def is_corpus(folder: Path) -> bool:
    """Whether a folder has a complete corpus."""
    return (folder / _MANIFEST).is_file() and (folder / "train.bin").is_file()


def copy_corpus(source: Path, target: Path) -> None:
    """Copy both splits, then the manifest."""
    for split in ("train", "held_out"):
        for suffix in ("npy", "bin", "json"):
            shutil.copyfile(source / f"{split}.{suffix}", target / f"{split}.{suffix}")
    shutil.copyfile(source / _MANIFEST, target / _MANIFEST)


def write_corpus(folder: Path, splits: dict[Split, Sequence[Document]], manifest: Manifest) -> None:
    """Write all splits, then the manifest: a folder with a manifest is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, unsorted in splits.items():
        documents = sorted(unsorted, key=lambda document: document.package)
        encoded = [document.text.encode() for document in documents]
        origins = [[document.package, document.path] for document in documents]
        (folder / f"{split}.json").write_text(json.dumps(origins, ensure_ascii=False) + "\n", encoding="utf-8")
        np.save(folder / f"{split}.npy", np.cumsum([0, *map(len, encoded)], dtype=np.int64))
        (folder / f"{split}.bin").write_bytes(b"".join(encoded))
    (folder / _MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n")
