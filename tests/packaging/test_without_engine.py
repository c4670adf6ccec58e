"""midfill as `pip install midfill` and `midfill[core]` leave it: without the engine's packages, or without torch's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from protocol.installation import ENGINE, TORCH, missing
from tests.packaging.commands import SESSION, run

REPOSITORY = Path(__file__).parents[2]
TRACE = REPOSITORY / "tests" / "data" / "rustcode-3000-3400.json.gz"
# As in an environment without these packages: they can be neither imported nor found by their metadata.
HIDE = """
import importlib.metadata, sys
from protocol.installation import _required, is_of
extras = {extras}
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if any(is_of(extra, name) for extra in extras):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
names, version = sum(map(_required, extras), []), importlib.metadata.version
def hidden(name):
    if name in names:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = hidden
sys.meta_path.insert(0, Hidden())
"""


def without(extras: list[str], folder: Path) -> dict[str, str]:
    """Variables with which Python has no package of these extras, in child processes either."""
    (folder / "sitecustomize.py").write_text(HIDE.replace("{extras}", repr(extras)))
    return {"PYTHONPATH": f"{folder}:{REPOSITORY}"}


@pytest.fixture
def without_engine(tmp_path: Path) -> dict[str, str]:
    return without([ENGINE, TORCH], tmp_path)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "Run the language server"),
        (["--version"], 0, "0."),
        (["core", "list"], 0, "no core is running"),
        (["stats"], 0, "No suggestion was shown yet"),
        (["doctor"], 1, "a core on this machine needs the engine, and gguf,"),
        (["doctor", "--core", "ws://127.0.0.1:1"], 1, "other machine"),
        (["complete", "README.md:1:1", "--core", "ws://127.0.0.1:1", "--core-token", "t"], 1, "127.0.0.1:1"),
        (["complete", "README.md:1:1"], 2, "needs the engine (No module named"),
        (["core"], 2, "`midfill core` needs the engine (No module named"),
        (["models"], 2, "run `make install` in the clone"),
        (["replay", str(TRACE)], 2, "run `make install` in the clone"),
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


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("complete demo.py:3:9 --no-start-core --model tiny", 0, "self"),
        ("complete demo.py:3:9 --no-start-core --model tiny --device cuda", 2, "tiny needs PyTorch here, and torch is"),
        ("doctor --model tiny --weights int8", 1, "model: tiny needs PyTorch here, and torch is not installed: run"),
        ("doctor --model phi", 1, "phi/config.json needs PyTorch here, and transformers is not installed: run"),
    ],
)
def test_the_kernel_needs_no_torch(arguments: str, status: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text("class A:\n    def f(self, name):\n        ")
    (tmp_path / "phi").mkdir()
    (tmp_path / "phi" / "config.json").write_text('{"model_type": "phi"}')
    (tmp_path / "phi" / "tokenizer.json").write_text("{}")
    done = run([sys.executable, "-m", "midfill", *arguments.split()], tmp_path, **without([TORCH], tmp_path))
    assert said in done.stdout + done.stderr
    assert done.returncode == status


def test_nothing_is_hidden_from_the_tests() -> None:
    assert missing() == missing(ENGINE) == missing(TORCH) == []
