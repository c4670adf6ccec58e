"""The packages that the tasks are cut from: pinned versions, downloaded by pip and npm, and unpacked in a cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import platformdirs

from protocol.errors import BadInput

Language = Literal["python", "typescript"]

_PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Package:
    """A package of PyPI (`python`) or npm (`typescript`), and its licence as an SPDX expression."""

    language: Language
    name: str
    version: str
    licence: str

    @property
    def folder(self) -> str:
        """The name of its folder in the cache."""
        return f"{self.language}/{self.name.replace('/', '-').removeprefix('@')}-{self.version}"


PACKAGES: Sequence[Package] = (
    Package("python", "bandit", "1.9.4", "Apache-2.0"),
    Package("python", "briefcase", "0.4.7", "BSD-3-Clause"),
    Package("python", "dateparser", "1.5.0", "BSD-3-Clause"),
    Package("python", "huey", "3.5.4", "MIT"),
    Package("python", "icalendar", "7.3.0", "BSD-2-Clause"),
    Package("python", "litestar", "2.25.0", "MIT"),
    Package("python", "pdm", "2.29.4", "MIT"),
    Package("python", "piccolo", "1.38.0", "MIT"),
    Package("python", "pipx", "1.18.4", "MIT"),
    Package("python", "pyinfra", "3.10.0", "MIT"),
    Package("python", "pypdf", "7.1.0", "BSD-3-Clause"),
    Package("python", "smolagents", "1.26.0", "Apache-2.0"),
    Package("python", "streamlink", "8.6.3", "BSD-2-Clause"),
    Package("python", "structlog", "26.1.0", "MIT OR Apache-2.0"),
    Package("python", "tortoise-orm", "1.1.9", "Apache-2.0"),
    Package("typescript", "@auth/core", "0.41.3", "ISC"),
    Package("typescript", "@effect/platform", "0.97.2", "MIT"),
    Package("typescript", "@msgpack/msgpack", "3.1.3", "ISC"),
    Package("typescript", "@xterm/xterm", "6.0.0", "MIT"),
    Package("typescript", "libp2p", "3.3.11", "Apache-2.0 OR MIT"),
    Package("typescript", "msw", "2.15.0", "MIT"),
    Package("typescript", "multiformats", "14.0.5", "Apache-2.0 OR MIT"),
    Package("typescript", "pdf-lib", "1.17.1", "MIT"),
)
"""No training of midfill's own models uses them."""

SUFFIXES: Mapping[Language, tuple[str, ...]] = {"python": (".py",), "typescript": (".ts", ".tsx")}


def packages_folder() -> Path:
    """Where packages are unpacked unless the command line names a folder: in the user's cache."""
    return Path(platformdirs.user_cache_dir("midfill", appauthor=False)) / "evaluation" / "packages"


def unpacked(package: Package, cache: Path) -> Path:
    """The folder of a package's files, downloaded first if it is not there; BadInput if that fails."""
    place = cache / package.folder
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place.parent, prefix=".new-") as scratch:
        archive = _download(package, Path(scratch))
        files = Path(scratch) / "files"
        _unpack(archive, files)
        for file in files.rglob("*"):
            if file.is_file() and not _is_source(file, package.language):
                file.unlink()
        shutil.move(files, place)
    return place


def _is_source(file: Path, language: Language) -> bool:
    """Whether a workspace would hold the file: sources, and no output of a build."""
    return file.suffix in SUFFIXES[language] and not file.name.endswith(".d.ts")


def _download(package: Package, folder: Path) -> Path:
    command: tuple[str, ...]
    if package.language == "python":
        options: tuple[str, ...] = ("--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder))
        command = (sys.executable, "-P", "-m", "pip", "download", *options, f"{package.name}=={package.version}")
    else:
        options = ("--silent", "--ignore-scripts", "--pack-destination", str(folder))
        command = (shutil.which("npm") or "npm", "pack", *options, f"{package.name}@{package.version}")
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE_S, cwd=folder)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise BadInput(f"{package.name} {package.version} cannot be downloaded: {' '.join(said)}") from error
    archives = [*folder.glob("*.whl"), *folder.glob("*.tgz")]
    if len(archives) != 1:
        raise BadInput(f"{package.name} {package.version}: expected one archive, found {len(archives)}")
    return archives[0]


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, whose paths may not lead out of the folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)  # it drops drives, leading slashes and `..`
        return
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
