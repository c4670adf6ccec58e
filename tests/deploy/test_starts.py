"""The image is built of what its file copies, and each file in deploy/ starts a core that answers."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions, version
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from bench.llama_server import free_port
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.text.tokenization import read_tokenizer
from midfill.commands import app
from protocol.rendezvous import read_or_make_token
from protocol.settings import Settings
from protocol.settings_sources import read_environment
from tests.deploy.starts import (
    COMPOSE,
    CONTAINERFILE,
    CORES,
    HOST,
    KEY,
    ROOT,
    Start,
    of_compose,
    of_kubernetes,
    of_the_image,
)
from tests.inference.remote.fake_servers import FakeServer, openai_server, serving

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the image has Linux"),
    pytest.mark.skipif(
        sys.platform == "linux" and not version("torch").endswith("+cpu"), reason="the image has the CPU build of torch"
    ),
]
TINY = str(BUNDLED_FOLDERS["tiny"])
PATIENCE_S = 100.0
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
    for option in ("--python", "--torch-backend"):  # which pip does not know
        del given[given.index(option) : given.index(option) + 2]
    given = [option for option in given if option not in ("--no-cache", "--compile-bytecode")]

    venv.create(folder)
    python = folder / "bin" / "python"
    packages = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
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


@dataclass(frozen=True)
class Core:
    """A core that a file in deploy/ has started, at a port of this machine."""

    process: subprocess.Popen[bytes]
    port: int
    host: str  # how its users address it
    authority: ssl.SSLContext | None  # None without TLS

    def listens(self) -> bool:
        """Whether it does by now."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def ask(self, path: str, body: object = None, token: str = "") -> tuple[int, str]:
        """The status and the text of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        if self.authority is not None:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_S, context=self.authority)
        headers = {"Host": self.host} | ({"Authorization": f"Bearer {token}"} if token else {})
        with closing(connection):
            connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read().decode()


def issue(folder: Path, certificate: str, key: str) -> ssl.SSLContext:
    """Put a certificate and its key into the folder; who trusts them."""
    authority, context = trustme.CA(), ssl.create_default_context()
    issued = authority.issue_cert("127.0.0.1", "localhost", HOST)
    (folder / certificate).write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / key).write_bytes(issued.private_key_pem.bytes())
    authority.configure_trust(context)
    return context


@contextmanager
def running(midfill: Path, start: Start, port: int, authority: ssl.SSLContext | None) -> Iterator[Core]:
    """The started core, from its first answer on; in the end it gets SIGTERM."""
    host = HOST if any(HOST in argument for argument in start.arguments) else "localhost"
    environment = start.variables | {"PATH": os.environ["PATH"]}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([midfill, *start.arguments], env=environment, stderr=log) as process,
    ):
        core = Core(process, port, host, authority)
        try:
            while not core.listens():
                log.seek(0)
                assert process.poll() is None, log.read()
                time.sleep(0.1)
            yield core
        finally:
            process.terminate()


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
    with running(midfill, start, port, authority) as core:
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
