"""`midfill complete` and `midfill doctor` beside a core that is running."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midfill.cli import app
from midfill.complete import Place, complete
from midfill.doctor.core import cores
from protocol.errors import Unauthorized
from protocol.rendezvous import address_file
from protocol.settings import BUNDLED_MODEL, Settings

START_SECONDS = 60.0


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A core that serves the bundled model in a runtime folder of its own, which this process uses too."""
    for name in [name for name in os.environ if name.startswith("MIDFILL_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "runtime"
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(folder))
    process = subprocess.Popen([sys.executable, "-m", "midfill", "core"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while not address_file(folder, BUNDLED_MODEL).exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process
    process.terminate()
    process.wait()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sample.py"
    path.write_text("def area(width, height):\n    return \n", encoding="utf-8")
    return path


def test_the_running_core_is_asked(
    core: "subprocess.Popen[bytes]", source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("inference.loading.load_engine")
    result = CliRunner().invoke(app, ["complete", f"{source}:1:10", "--json"])
    found = json.loads(result.stdout)
    assert found["usage"]["generated_tokens"] > 0
    assert found["model"] == BUNDLED_MODEL


def test_the_doctor_finds_it(core: "subprocess.Popen[bytes]") -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    found = json.loads(result.stdout)
    assert found["ok"], found["problems"]
    assert f"process {core.pid}, " in found["sections"]["core"][BUNDLED_MODEL]


async def test_a_token_that_is_not_the_cores(core: "subprocess.Popen[bytes]", source: Path) -> None:
    token_file = Path(os.environ["MIDFILL_RUNTIME_DIR"]) / "token"
    token_file.write_text("another")
    with pytest.raises(Unauthorized, match="refused the token"):
        await complete(Settings(), Place(source, 1, 10))
    (problem,) = (await cores(Settings())).problems
    assert "refused the token" in problem
