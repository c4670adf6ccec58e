"""Reads packages of PyPI, npm and Debian, downloaded or installed, as licensed sets of the files that people wrote."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal, get_args

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from midfill_lab.recipe.licences import Licence, judge_expression, judge_licence
from midfill_lab.training.corpus import SUFFIXES, WEB
from midfill_lab.training.options import CorpusError

Registry = Literal["pypi", "npm", "debian"]
REGISTRIES: tuple[Registry, ...] = get_args(Registry)
LISTS = Path(__file__).with_name("packages")
_HELD_OUT = "held-out"
BATCH = 40
MAX_MEMBER_BYTES = 1_000_000
# Beside source files: what tells a package's name, version and licence.
_NOTES = frozenset({"METADATA", "RECORD", "package.json", "copyright"})
_SUITE = "bookworm"
_APT = """Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "{folder}/lists";
Dir::Cache "{folder}";
"""
STANDARD_LIBRARY = "python"
_TYPESCRIPT = frozenset({".ts", ".tsx", ".mts", ".cts"})
_BUILT = frozenset(
    {
        "dist", "build", "umd", "esm", "cjs", "es", "es5", "es6", "es2015", "amd", "bundle", "bundles", "out", "output",
        "lib-esm", "lib-commonjs", "dist-src", "fesm2022", "_esm", "_cjs", "_types", "lib.esm", "lib.commonjs", "types",
        "node_modules",
    }
)  # fmt: skip
# Debian's short names that differ from SPDX identifiers, in capitals.
_SHORT_NAMES = {
    "APACHE": "APACHE-2.0",
    "BOOST-1.0": "BSL-1.0",
    "BSD-2": "BSD-2-CLAUSE",
    "BOOST-1": "BSL-1.0",
    "BSD-3": "BSD-3-CLAUSE",
    "BSD-C3": "BSD-3-CLAUSE",
    "BSD-3-CLAUSE~REDIS": "BSD-3-CLAUSE",
    "BSD-3-GOOGLE": "BSD-3-CLAUSE",
    "BSL-1": "BSL-1.0",
    "CC0": "CC0-1.0",
    "EXPAT": "MIT",
    "GO": "BSD-3-CLAUSE",
    "MIT-1": "MIT",
    "PUBLIC-DOMAIN": "CC0-1.0",
    "X11": "MIT",
    "ZLIB/LIBPNG": "ZLIB",
}


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


def download(registry: Registry, packages: Sequence[Pinned], folder: Path) -> None:
    """Download the packages that `folder` lacks, in batches; a batch that fails is reported and left out.

    Raises:
        CorpusError: the registry's client is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [package for package in packages if not _archives(registry, package, folder)]
    if missing and registry == "debian":
        _run(["apt-get", "update", "-qq"], folder, _apt_config(folder))
    for first in range(0, len(missing), BATCH):
        batch = missing[first : first + BATCH]
        _run(_command(registry, batch), folder, _apt_config(folder) if registry == "debian" else None)


def unpack_downloads(registry: Registry, packages: Sequence[Pinned], folder: Path, target: Path) -> list[Pinned]:
    """Unpack the source files of downloaded packages, each to `target/NAME` (PyPI: all to `target`).

    Returns the packages that are not in `folder`.
    """
    missing: list[Pinned] = []
    for package in packages:
        archives = _archives(registry, package, folder)
        if not archives:
            missing.append(package)
        for archive in archives:
            place = target if registry == "pypi" else folder_of(target, package)
            done = place / f".{archive.name}.unpacked"
            if not done.exists():
                _extract(archive, place)
                done.touch()
    return missing


def folder_of(target: Path, package: Pinned) -> Path:
    """Where a package of npm or Debian is unpacked."""
    return target / package.name.replace("/", "+")


def _command(registry: Registry, packages: Sequence[Pinned]) -> list[str]:
    if registry == "pypi":
        names = [f"{package.name}=={package.version}" for package in packages]
        options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check", "--dest", "."]
        return [sys.executable, "-P", "-m", "pip", "download", *options, *names]
    if registry == "npm":
        return ["npm", "pack", "--silent", *(f"{package.name}@{package.version}" for package in packages)]
    names = [f"{package.name}={package.version}" for package in packages]
    return ["apt-get", "source", "-qq", "--download-only", "--only-source", *names]


def _run(command: Sequence[str], folder: Path, config: Path | None) -> None:
    if shutil.which(command[0]) is None:
        raise CorpusError(f"{command[0]} is not installed: packages of its registry cannot be downloaded")
    prefix = ["env", f"APT_CONFIG={config}"] if config else []
    subprocess.run([*prefix, *command], cwd=folder, check=False, stdout=subprocess.DEVNULL)


def _apt_config(folder: Path) -> Path:
    """apt's settings for downloads without root, and without a change to the system's own lists."""
    apt = folder.resolve() / "apt"
    for part in ("lists/partial", "archives/partial"):
        (apt / part).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(f"deb-src {_debian_mirror()} {_SUITE} main\n")
    (apt / "apt.conf").write_text(_APT.format(folder=apt))
    return apt / "apt.conf"


def _debian_mirror() -> str:
    """The mirror that this system takes the suite's packages from; CorpusError if it has none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {_SUITE}"]
    try:
        mirrors = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise CorpusError(f"Debian's sources need apt-get: {error}") from error
    if not mirrors:
        raise CorpusError(f"apt has no package lists of {_SUITE}: Debian's sources are downloaded from its mirror")
    return mirrors[0]


def _archives(registry: Registry, package: Pinned, folder: Path) -> list[Path]:
    if registry == "pypi":
        wanted = canonicalize_name(package.name), Version(package.version)
        return [path for path in sorted(folder.glob("*.whl")) if parse_wheel_filename(path.name)[:2] == wanted]
    if registry == "npm":
        name = package.name.removeprefix("@").replace("/", "-")
        return sorted(folder.glob(f"{name}-{package.version}.tgz"))
    version = package.version.partition(":")[2] or package.version
    upstream = version.rpartition("-")[0]
    names = [f"{package.name}_{version}.debian.tar.*", f"{package.name}_{version}.tar.*"]
    names += [f"{package.name}_{upstream}.orig.tar.*"] if upstream else []
    found = [path for name in names for path in sorted(folder.glob(name)) if path.suffix != ".asc"]
    complete = not upstream or any(".orig." in path.name for path in found)
    return found if complete else []


def _extract(archive: Path, place: Path) -> None:
    members = _zip_members(archive) if archive.suffix == ".whl" else _tar_members(archive)
    for name, raw in members:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


def _zip_members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as files:
        for info in files.infolist():
            if _is_wanted(info.filename, info.file_size):
                yield info.filename, files.read(info)


def _tar_members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The wanted members, without the folder that all of them are in, if there is one."""
    with tarfile.open(archive) as files:
        for info in files:
            parts = PurePosixPath(info.name).parts
            name = info.name if parts[:1] == ("debian",) else "/".join(parts[1:])
            if info.isreg() and _is_wanted(name, info.size):
                file = files.extractfile(info)
                assert file is not None
                yield name, file.read()


def _is_wanted(name: str, size: int) -> bool:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or size > MAX_MEMBER_BYTES:
        return False
    return path.suffix in SUFFIXES or path.name in _NOTES


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


def npm_package(folder: Path) -> Package:
    """The package that is unpacked in `folder`.

    Raises:
        CorpusError: it has no readable package.json.
    """
    try:
        note: dict[str, Any] = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        name, version = str(note["name"]), str(note["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{folder} is no npm package: {error}") from error
    return Package(f"npm/{name}", version, _licence(note), _files_of(folder))


def _licence(note: dict[str, Any]) -> Licence:
    """The licence by its SPDX expression; older forms name a type, or several of which one may be chosen."""
    stated = note.get("license", note.get("licenses"))
    if isinstance(stated, dict):
        stated = stated.get("type")
    if isinstance(stated, list):
        stated = " OR ".join(str(one.get("type") if isinstance(one, dict) else one) for one in stated)
    return judge_expression(str(stated)) if stated else Licence("unknown", permitted=False)


def _files_of(folder: Path) -> tuple[SourceFile, ...]:
    """The package's files, without declarations, minified and built ones; TypeScript, where its JavaScript is there."""
    paths = [(path, path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.suffix in WEB]
    written = [SourceFile(path, relative) for path, relative in paths if path.is_file() and not _is_built(relative)]
    if any(file.path.suffix in _TYPESCRIPT for file in written):
        written = [file for file in written if file.path.suffix in _TYPESCRIPT]
    return tuple(written)


def _is_built(path: PurePath) -> bool:
    if not _BUILT.isdisjoint(path.parts[:-1]):
        return True
    return any(mark in path.name for mark in (".d.", ".min.", "-min.", ".bundle.", ".umd.", ".production."))


@dataclass(frozen=True)
class _Stanza:
    pattern: re.Pattern[str]
    licence: Licence


def debian_package(folder: Path, pinned: Pinned) -> Package:
    """The source package that is unpacked in `folder`: only files whose own stanza names a permissive licence.

    The package's licence is that of most of its files. Without a machine-readable copyright file it is refused.
    """
    stanzas = list(_stanzas(folder / "debian" / "copyright"))
    kept: list[SourceFile] = []
    names = Counter[str]()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.suffix not in SUFFIXES or relative.parts[0] == "debian" or not path.is_file():
            continue
        licence = _licence_of(relative, stanzas)
        names[licence.name] += 1
        if licence.permitted:
            kept.append(SourceFile(path, relative))
    most = ", ".join(name for name, _ in names.most_common(3)) or "unknown"
    return Package(f"debian/{pinned.name}", pinned.version, Licence(most, permitted=bool(kept)), tuple(kept))


def _licence_of(path: PurePath, stanzas: list[_Stanza]) -> Licence:
    """That of the last stanza that matches, as the format defines it."""
    matching = [stanza.licence for stanza in stanzas if stanza.pattern.fullmatch(path.as_posix())]
    return matching[-1] if matching else Licence("unknown", permitted=False)


def _stanzas(copyright_file: Path) -> Iterator[_Stanza]:
    """The stanzas with files, of the format at debian.org/doc/packaging-manuals/copyright-format/1.0."""
    if not copyright_file.is_file():
        return
    for paragraph in re.split(r"\n\s*\n", copyright_file.read_text(encoding="utf-8", errors="replace")):
        fields = dict(re.findall(r"^([A-Za-z-]+):((?:.*)(?:\n[ \t].*)*)", paragraph, re.MULTILINE))
        if "Files" not in fields or "License" not in fields:
            continue
        name = fields["License"].strip().partition("\n")[0].strip()
        patterns = "|".join(translate(pattern) for pattern in fields["Files"].split())
        yield _Stanza(re.compile(patterns), judge_expression(_spdx(name)))


def _spdx(name: str) -> str:
    """Debian's expression with SPDX identifiers; a comma separates as in `A, and B`."""
    words = re.split(r"(\s+(?:and|or)\s+)", name.replace(",", " "), flags=re.IGNORECASE)
    return "".join(_SHORT_NAMES.get(word.strip().upper(), word) for word in words)
