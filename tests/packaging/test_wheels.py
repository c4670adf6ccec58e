"""The built wheels, installed as users install them, in environments that know nothing of the clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.rendezvous import read_address, read_or_make_token
from tests.packaging.commands import SESSION, run

pytestmark = pytest.mark.wheels
BIN = "Scripts" if sys.platform == "win32" else "bin"
FOLDER = Path(os.environ.get("TEST_WHEELS", "dist"))
RECIPE = "midfill_lab.recipe"
Install = Callable[..., Path]


def built(pattern: str) -> Path:
    (file,) = FOLDER.resolve().glob(pattern)
    return file


def models() -> list[Path]:
    return [built("midfill_model-*.whl"), built("midfill_model_tiny-*.whl")]


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Makes an environment and installs into it by pip: the folder of its commands.

    With `shared`, the environment has the packages of this one, too.
    """

    def installed(*requirements: object, shared: bool = False) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder)
        pip = [sys.executable, "-m", "pip", "--python", folder / BIN / "python", "install", "--quiet"]
        if shared:
            Path(sysconfig.get_path("purelib", vars={"base": str(folder)}), "shared.pth").write_text(
                sysconfig.get_path("purelib")
            )
            pip += ["--no-index"]
        subprocess.run([*map(str, pip), *map(str, requirements)], check=True, cwd=folder)
        return folder / BIN

    return installed


@pytest.fixture(scope="module")
def small(install: Install) -> Path:
    """`pip install midfill`: with what it requires, from an index."""
    return install(built("midfill-*.whl"))


@pytest.fixture(scope="module")
def full(install: Install) -> Path:
    """`pip install midfill[core]` as the VS Code extension does it, without torch."""
    return install(f"midfill[core] @ {built('midfill-*.whl').as_uri()}", *models())


def test_the_distributions_have_what_they_need_and_no_more() -> None:
    with tarfile.open(built("midfill-*.tar.gz")) as sdist, zipfile.ZipFile(built("midfill-*.whl")) as wheel:
        names = wheel.namelist()
        assert "inference/backends/cpu/kernel/decode.cpp" in "\n".join(sdist.getnames())
    assert [name for name in names if "/_decode" in name and name.endswith((".so", ".pyd"))]
    assert not [name for name in names if name.endswith((".safetensors", ".cpp")) or name.startswith(("tests", "lab"))]
    assert all(model.stat().st_size < 100e6 for model in models())
    assert "-py3-none-" in built("midfill-*.whl").name  # one for every Python


def test_a_small_installation_has_no_engine(small: Path, tmp_path: Path) -> None:
    assert run([small / "python", "-c", "import torch"], tmp_path).returncode == 1
    assert run([small / "midfill", "--version"], tmp_path).stdout.startswith("0.")
    assert '"name": "midfill"' in run([small / "midfill", "lsp"], tmp_path, stdin=SESSION).stdout
    for command, said in (("core", "needs the engine"), ("train", "part of the package midfill-lab")):
        done = run([small / "midfill", command], tmp_path)
        assert said in done.stderr
        assert done.returncode == 2


def test_a_small_installation_is_small(small: Path) -> None:
    files = [path for path in small.parent.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 40e6


def test_a_full_installation_completes_code(full: Path, tmp_path: Path) -> None:
    where = run([full / "python", "-c", "import midfill; print(midfill.__file__)"], tmp_path)
    assert where.stdout.startswith(str(full.parent))
    assert run([full / "python", "-c", "import torch"], tmp_path).returncode == 1
    (tmp_path / "demo.py").write_text("def add(first, second):\n    return first ")
    done = run([full / "midfill", "complete", "demo.py:2:18", "--json"], tmp_path)
    assert '"suggestion": "+ second' in done.stdout, done.stderr
    kernel = "from inference.backends.cpu.library import levels; print(*levels())"
    assert run([full / "python", "-c", kernel], tmp_path).stdout.startswith("portable")


def test_the_lab_adds_its_commands(install: Install, tmp_path: Path) -> None:
    midfill = f"midfill[core] @ {built('midfill-*.whl').as_uri()}"
    folder = install(midfill, *models(), built("midfill_lab-*.whl"), shared=True)
    for command in ([folder / "midfill", "train"], [folder / "midfill", "eval"], [folder / "python", "-m", RECIPE]):
        done = run([*command, "--help"], tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    lists = f"from {RECIPE}.registries import REGISTRIES, read_list; print([len(read_list(of)) for of in REGISTRIES])"
    assert min(json.loads(run([folder / "python", "-c", lists], tmp_path).stdout)) > 10


def test_a_small_installation_uses_the_core_of_a_full_one(full: Path, small: Path, tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text("def add(first, second):\n    return first ")
    environment = os.environ | {"MIDFILL_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    with subprocess.Popen([full / "midfill", "core"], cwd=tmp_path, env=environment) as core:
        try:
            while not (found := list(tmp_path.glob("core-*.json"))):
                assert core.poll() is None
                time.sleep(0.1)
            address = read_address(found[0])
            assert address is not None
            remote = ["--core", address.url.removesuffix("/ws"), "--core-token", read_or_make_token(tmp_path)]
            done = run([small / "midfill", "complete", "demo.py:2:18", *remote], tmp_path)
            assert done.stdout == "+ second\n", done.stderr
        finally:
            core.terminate()
