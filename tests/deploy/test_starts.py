"""The image is built of what its file copies, and each file in deploy/ starts a core that answers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.llama_server import free_port
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.text.tokenization import read_tokenizer
from midfill.commands import app
from protocol.rendezvous import read_or_make_token
from protocol.settings import Settings
from protocol.settings_sources import read_environment
from tests.deploy.running import PATIENCE_S, issue, running
from tests.deploy.starts import COMPOSE, CONTAINERFILE, CORES, KEY, ROOT, of_compose, of_kubernetes, of_the_image
from tests.inference.remote.fake_servers import FakeServer, openai_server, serving

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="the image has Linux")]
TINY = str(BUNDLED_FOLDERS["tiny"])
_HEAD_BYTES = 2**23


@pytest.fixture(scope="module")
def midfill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment like the image's: what the build's command installs from the files that it has.

    The packages are this environment's, and of these only the ones that pip finds to be required.
    """
    source, folder = tmp_path_factory.mktemp("src"), tmp_path_factory.mktemp("opt")
    for instruction, rest in CONTAINERFILE:
        if instruction == "COPY" and not rest.startswith("--"):
            *names, to = rest.split()
            for name in names:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, source / to, copy_function=_copy)
                else:
                    _copy(ROOT / name, source / to / name)
    (command,) = [rest for instruction, rest in CONTAINERFILE if instruction == "RUN" and "uv pip install" in rest]
    given = shlex.split(command.partition("uv pip install")[2])
    del given[given.index("--python") : given.index("--python") + 2]  # pip has it elsewhere
    given = [option for option in given if option not in ("--no-cache", "--compile-bytecode")]

    venv.create(folder)
    python = folder / "bin" / "python"
    packages = Path(
        subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
    )
    shared = packages / "shared.pth"
    shared.write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-build-isolation", *given]
    quick = {"CC": "false", "CXX": "false"}  # the kernel takes a minute, and is not needed to start
    done = subprocess.run(pip, cwd=source, env=os.environ | quick, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shared.unlink()
    required = set(re.findall(r"^Requirement already satisfied: ([\w.-]+)", done.stdout, re.MULTILINE))
    for distribution in distributions():
        if _plain(distribution.name) in {_plain(name) for name in required}:
            _link(distribution, packages)
    return folder / "bin" / "midfill"


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file; of weights only the head, since packing zeros is quick."""
    size = Path(source).stat().st_size
    with Path(source).open("rb") as file:
        Path(target).write_bytes(file.read(_HEAD_BYTES))
    os.truncate(target, size)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _link(distribution: Distribution, packages: Path) -> None:
    """Make an installed distribution importable from another folder."""
    for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        if not (packages / name).exists():
            (packages / name).symlink_to(distribution.locate_file(name))


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """The address of a server with the interface of vLLM, where the router would be."""
    tokenizer = read_tokenizer(Path(TINY) / "tokenizer.json")
    state = FakeServer(tokenizer, context=4096, key=KEY, model=TINY, obeys=("structured_outputs",))
    with serving(openai_server(state)) as url:
        yield url


STARTS = {
    "Containerfile": (of_the_image(), "", ""),
    "kubernetes/core.yaml": (of_kubernetes(TINY), "tls.crt", "tls.key"),  # as `kubectl create secret tls` names them
    "compose.yaml": (of_compose(COMPOSE, "core", TINY), "cert.pem", "key.pem"),
    "cores.yaml": (of_compose(CORES, "core-1", TINY), "", ""),
}


@pytest.mark.parametrize("file", STARTS)
def test_the_core_starts_answers_and_ends(
    midfill: Path, file: str, engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployed, certificate, key = STARTS[file]
    port = free_port()
    here = {mount: tmp_path / mount.strip("/").replace("/", "-") for mount in deployed.mounts}
    for folder in here.values():
        folder.mkdir(mode=0o700)
    start = deployed.at(
        {mount: str(folder) for mount, folder in here.items()} | {"http://router:8000": engine, "8765": str(port)}
    )
    assert (read_environment(Settings(), start.variables)[1], caplog.records) == ((), [])
    token = ""
    for users in [argument.removeprefix("--users=") for argument in start.arguments if argument.startswith("--users=")]:
        token = CliRunner().invoke(app, ["token", "add", "ada", "--users", users]).stdout.split()[-1]
    authority = issue(here["/tls"], certificate, key) if certificate else None
    with running([str(midfill)], start, port, authority) as core:
        assert core.ask("/health")[0] == 200
        assert core.ask("/v1/models", token="wrong")[0] == 401
        own = token or read_or_make_token(Path(start.variables["MIDFILL_RUNTIME_DIR"]))
        assert core.ask("/v1/models", token=own)[0] == 200
        if any(argument.startswith("--engine=") for argument in start.arguments):
            status, answer = core.ask("/v1/completions", {"prompt": "al", "max_tokens": 9}, token)
            assert (status, "pha beta" in answer) == (200, True), answer
        if file == "compose.yaml":
            _, _, option, code = COMPOSE["services"]["core"]["healthcheck"]["test"]
            subprocess.run([sys.executable, option, code.replace("8765", str(port))], check=True)
        core.process.terminate()
        assert core.process.wait(PATIENCE_S) == 0
