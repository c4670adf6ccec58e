"""Downloads the pinned packages with each registry's own client, and unpacks their source files."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from midfill_lab.recipe.package_lists import Pinned, Registry
from midfill_lab.training.corpus.languages import SUFFIXES
from midfill_lab.training.errors import CorpusError

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


def unpack(registry: Registry, packages: Sequence[Pinned], folder: Path, target: Path) -> list[Pinned]:
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
