"""Sections 0 to 2: what is installed, the card's ceilings, and the repository's own tests of the GPU path."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch
from proof.card import Card
from proof.runner import Check, Finding, Row, Section, Skipped
from proof.sizes import Sizes

from inference.backends import cuda

ROOT = Path(__file__).parents[2]
NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "msgspec", "gguf", "psutil")
WELCOME = ("triton", "torchao", "pytest", "hypothesis")
TESTS = tuple(f"tests/inference/backends/{name}.py" for name in ("test_cuda", "llama/test_graphs", "llama/test_split_attention"))
TESTS_NEED = ("pytest", "hypothesis")
LEAST_BYTES = 24 * 2**30
TESTS_S = 80.0
SETTINGS = ROOT / "tests" / "gpu.ini"
"""The project's own settings name plugins that these tests do without."""


def sections(card: Card, sizes: Sizes) -> list[Section]:
    """What runs before midfill's own code."""
    return [
        Section(0, "machine", 5, lambda: _machine(card), partial(_about_machine, is_real=card.is_real)),
        Section(1, "ceilings", 2, lambda: _ceilings(card, sizes), _about_ceilings),
        Section(2, "tests", 32, lambda: _tests(card), _about_tests),
    ]


def facts() -> dict[str, object]:
    """What the figures depend on: the machine, versions and the revision."""
    found = {name: _version(name) for name in (*NEEDED, *WELCOME)}
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.platform()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {number}" for name, number in found.items() if number),
        "cuda": f"{torch.version.cuda}, cuDNN {_cudnn()}",
        "revision": _output("git", "-C", str(ROOT), "rev-parse", "HEAD") or "unknown",
    }


def _machine(card: Card) -> Iterator[Row]:
    for name in NEEDED:
        yield {"package": name, "version": _version(name), "needed": True}
    for name in WELCOME:
        yield {"package": name, "version": _version(name), "needed": False}
    query = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,power.limit,compute_mode"
    yield {"nvidia-smi": _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")}
    row: Row = {"device": str(card.device), "free_bytes": card.free_bytes(), "capability": cuda.capability(card.device)}
    if card.is_real:
        properties = torch.cuda.get_device_properties(card.device)
        row |= {"name": properties.name, "multiprocessors": properties.multi_processor_count, "l2": properties.L2_cache_size}
    yield row


def _about_machine(rows: Sequence[Row], *, is_real: bool) -> Iterator[Finding]:
    for row in rows:
        if row.get("needed"):
            yield Check(f"{row['package']} is installed", row["version"] is not None, str(row["version"]))
        elif "device" in row:
            yield f"{row.get('name', 'simulated')} {row['capability']}, {row['free_bytes'] / 2**30:.1f} GiB free"
            if is_real:
                yield Check("the card is free", row["free_bytes"] >= LEAST_BYTES, f"{row['free_bytes']} bytes")
        elif row.get("nvidia-smi"):
            yield str(row["nvidia-smi"])
    missing = [row["package"] for row in rows if row.get("needed") is False and row["version"] is None]
    if missing:
        yield f"without {', '.join(missing)}"


def _ceilings(card: Card, sizes: Sizes) -> Iterator[Row]:
    bandwidth, rate = card.ceilings(sizes.copied_bytes, sizes.product)
    yield {"bytes_per_s": bandwidth, "operations_per_s": rate}


def _about_ceilings(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        yield f"copy {row['bytes_per_s'] / 1e12:.2f} TB/s, bfloat16 {row['operations_per_s'] / 1e12:.0f} TFLOP/s"


def _tests(card: Card) -> Iterator[Row]:
    """The tests in a process of their own; a dry run only collects them, since they run simulated elsewhere."""
    missing = [name for name in TESTS_NEED if find_spec(name) is None]
    if missing:
        raise Skipped(f"without {' and '.join(missing)}")
    command = [sys.executable, "-m", "pytest", "-c", str(SETTINGS), f"--rootdir={ROOT}", *TESTS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *_python_path()))}
    if card.is_real:
        environment["MIDFILL_TEST_GPU"] = "1"
        command.append("-rfE")
        if find_spec("xdist") is not None:
            command += ["-n", "4"]  # Triton compiles for seconds
    else:
        command.append("--collect-only")
    try:
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TESTS_S, check=False)
        output, status = ended.stdout + ended.stderr, ended.returncode
    except subprocess.TimeoutExpired as late:
        output, status = (late.stdout or b"").decode(errors="replace"), None
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (passed|failed|skipped|errors?|tests)", output)}
    yield {"status": status, "counts": counts, "output": output[-20_000:]}


def _about_tests(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        counts = row["counts"]
        yield Check("the tests pass", row["status"] == 0, f"status {row['status']}")
        yield Check("there were tests", counts.get("passed", 0) + counts.get("tests", 0) > 0, str(counts))
        yield ", ".join(f"{number} {name}" for name, number in counts.items())
        if row["status"] != 0:
            yield from [line for line in row["output"].splitlines() if line.startswith(("FAILED", "ERROR", "E  "))][:8]


def _python_path() -> list[str]:
    given = os.environ.get("PYTHONPATH")
    return given.split(os.pathsep) if given else []


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cudnn() -> str:
    return str(torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None)


def _output(*command: str) -> str:
    """The first line that a command prints; empty without it."""
    if shutil.which(command[0]) is None:
        return ""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return ended.stdout.strip().partition("\n")[0] if ended.returncode == 0 else ""
