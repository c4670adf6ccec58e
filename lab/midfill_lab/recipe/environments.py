"""Lists installed packages as named, licensed sets of Python source files."""

import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePath

from packaging.utils import canonicalize_name

from midfill_lab.recipe.licences import Licence, judge_licence
from midfill_lab.training.errors import CorpusError

STANDARD_LIBRARY = "python"


@dataclass(frozen=True)
class SourceFile:
    """A Python file: its location, and its path inside the package's environment."""

    location: Path
    path: PurePath


@dataclass(frozen=True)
class Package:
    """One installed package of one environment; `name` is in canonical form."""

    name: str
    version: str
    licence: Licence
    files: tuple[SourceFile, ...]


def default_environments() -> tuple[Path, ...]:
    """The site-packages folders of the running interpreter."""
    return tuple(dict.fromkeys(Path(sysconfig.get_path(key)) for key in ("purelib", "platlib")))


def standard_library() -> Package:
    """The running interpreter's standard library, as a package named `python`."""
    root = Path(sysconfig.get_path("stdlib"))
    files = (SourceFile(path, path.relative_to(root)) for path in sorted(root.rglob("*.py")))
    own = tuple(file for file in files if "site-packages" not in file.path.parts)
    version = ".".join(map(str, sys.version_info[:3]))
    return Package(STANDARD_LIBRARY, version, Licence("PSF-2.0", permitted=True), own)


def installed_packages(environment: Path) -> Iterator[Package]:
    """The packages with metadata in `environment`, a site-packages folder, sorted by name.

    Raises:
        CorpusError: `environment` is not a folder.
    """
    if not environment.is_dir():
        raise CorpusError(f"no such package environment: {environment}")
    named: dict[str, Distribution] = {}
    for distribution in distributions(path=[str(environment)]):
        named.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution)
    for name, distribution in sorted(named.items()):
        yield Package(name, distribution.version, judge_licence(distribution.metadata), _source_files(distribution))


def _source_files(distribution: Distribution) -> tuple[SourceFile, ...]:
    """The `.py` files that the package's RECORD lists inside its environment."""
    listed = sorted(file for file in distribution.files or () if file.suffix == ".py" and ".." not in file.parts)
    located = (SourceFile(Path(str(distribution.locate_file(file))), PurePath(file)) for file in listed)
    return tuple(file for file in located if file.location.is_file())
