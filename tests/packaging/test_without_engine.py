"""midfill as `pip install midfill` leaves it: without torch, transformers and what else only the engine needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from protocol.installation import ENGINE, missing
from tests.packaging.commands import SESSION, run

REPOSITORY = Path(__file__).parents[2]
TRACE = REPOSITORY / "tests" / "data" / "rustcode-3000-3400.json.gz"
# As in an environment without these packages: they can be neither imported nor found by their metadata.
HIDE = """
import importlib.metadata, sys
from protocol.installation import ENGINE, is_of_engine, _required
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if is_of_engine(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
names, version = _required(ENGINE), importlib.metadata.version
def hidden(name):
    if name in names:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = hidden
sys.meta_path.insert(0, Hidden())
"""


@pytest.fixture
def without_engine(tmp_path: Path) -> dict[str, str]:
    """Variables with which Python has no package of the engine, in child processes either."""
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    return {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "Run the language server"),
        (["--version"], 0, "0."),
        (["core", "list"], 0, "no core is running"),
        (["stats"], 0, "No suggestion was shown yet"),
        (["doctor"], 1, "a core on this machine needs the engine, and accelerate,"),
        (["doctor", "--core", "ws://127.0.0.1:1"], 1, "other machine"),
        (["complete", "README.md:1:1", "--core", "ws://127.0.0.1:1", "--core-token", "t"], 1, "127.0.0.1:1"),
        (["complete", "README.md:1:1"], 2, "needs the engine (No module named"),
        (["core"], 2, "`midfill core` needs the engine (No module named"),
        (["models"], 2, "run `make setup` in the clone"),
        (["replay", str(TRACE)], 2, "run `make setup` in the clone"),
    ],
)
def test_a_command_works_or_names_the_extra(
    arguments: list[str], status: int, said: str, tmp_path: Path, without_engine: dict[str, str]
) -> None:
    (tmp_path / "README.md").write_text("# A title\n")
    done = run([sys.executable, "-m", "midfill", *arguments], tmp_path, **without_engine)
    assert "Traceback" not in done.stderr
    assert said in done.stdout + done.stderr
    assert done.returncode == status


def test_a_core_that_a_language_server_starts_names_the_extra(tmp_path: Path, without_engine: dict[str, str]) -> None:
    done = run([sys.executable, "-m", "inference.core", "core.log", "{}"], tmp_path, **without_engine)
    (line,) = done.stderr.splitlines()
    assert line.startswith("midfill: `midfill core` needs the engine (No module named")
    assert done.returncode == 2


def test_the_language_server_starts(tmp_path: Path, without_engine: dict[str, str]) -> None:
    done = run([sys.executable, "-m", "midfill", "lsp"], tmp_path, stdin=SESSION, **without_engine)
    assert '"name":"midfill"' in done.stdout.replace('": "', '":"')
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_hidden_from_the_tests() -> None:
    assert missing() == missing(ENGINE) == []
