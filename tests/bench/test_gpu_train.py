"""The training on a lent GPU, tried on a CPU with a clock of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from bench import gpu_train
from midfill_lab.recipe.parts import pack, unpack
from midfill_lab.recipe.to_gguf import write_gguf
from midfill_lab.training import trainer
from midfill_lab.training.corpus import Document, Manifest, write_corpus
from midfill_lab.training.options import Quantization
from tests.inference.smollm import write_smollm
from tests.inference.tiny import ROOT, write_checkpoint
from tests.lab.packages import write_module

SMALL = ("--stages", "128:0.6,256:0.4", "--step-tokens", "512", "--micro-tokens", "256", "--lines", "6", "--makers", "1")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    texts = [write_module(Random(seed), 15) for seed in range(8)]
    documents = [Document(text, "package", f"module_{number}.py") for number, text in enumerate(texts)]
    write_corpus(tmp_path / "corpus", {"train": documents[:6], "held_out": documents[6:]}, Manifest((), {}))
    return tmp_path / "corpus"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a second goes by between two looks at the clock."""
    now = count(step=0.25)
    fake = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(gpu_train, "time", fake)
    monkeypatch.setattr(trainer, "time", fake)


def run(corpus: Path, output: Path, *arguments: str | Path, deadline: float) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    given = (corpus, "--output", output, "--deadline", deadline, "--cpu", *SMALL, *arguments)
    assert gpu_train.main([str(one) for one in given]) == 0
    return [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]


def of_kind(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if record["kind"] == kind]


@pytest.mark.usefixtures("clock")
def test_a_run_ends_before_its_deadline_and_leaves_the_last_weights(corpus: Path, tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", tie_word_embeddings=True)
    output = tmp_path / "out"
    records = run(corpus, output, "--base", base, "--reserve", "20", "--part-minutes", "0.3", deadline=90)
    steps = of_kind(records, "step")
    assert records[-1]["kind"] == "end"
    assert records[-1]["at"] <= 90
    assert records[-1]["steps"] == steps[-1]["progress"]["step"] == len(steps) >= 20
    assert {step["window"] for step in steps} == {128, 256}
    assert steps[-1]["rate_factor"] < 0.15
    assert [record["lines"] for record in of_kind(records, "exact")] == [6, 6]
    assert set(of_kind(records, "exact")[0]) >= {"efim", "psm", "spm"}
    assert len(of_kind(records, "speed")) == 1
    assert len(of_kind(records, "weights")) >= 3
    assert [path.name for path in output.glob("weights-*")] == [f"weights-{len(steps)}"]
    unpack(output / f"weights-{len(steps)}", tmp_path / "model")
    before, after = (LlamaForCausalLM.from_pretrained(folder) for folder in (base, tmp_path / "model"))
    assert after.dtype == torch.bfloat16 or after.config.dtype == before.config.dtype
    changed = [not torch.equal(one, other) for one, other in zip(before.parameters(), after.parameters(), strict=True)]
    assert all(changed)
    assert (tmp_path / "model" / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()


@pytest.mark.usefixtures("clock")
def test_what_comes_in_parts_is_unpacked_and_a_gguf_file_dequantized(corpus: Path, tmp_path: Path) -> None:
    write_gguf(str(write_smollm(tmp_path)), tmp_path / "gguf" / "model.gguf", Quantization("q8_0", "q8_0"))
    for name in ("corpus", "gguf"):
        pack(tmp_path / name, tmp_path / f"{name}-parts", 2000)
    given = ("--base", tmp_path / "gguf-parts", "--reserve", "10")
    records = run(tmp_path / "corpus-parts", tmp_path / "out", *given, deadline=25)
    assert [record["what"] for record in of_kind(records, "unpacked")] == ["corpus", "base"]
    assert records[-1]["kind"] == "end"
    assert not (corpus / "tokenizer.json").exists()


@pytest.mark.parametrize(("seconds", "stopped"), [(1.0, False), (4.0, True)])
def test_below_the_least_speed_nothing_is_compiled_any_more(seconds: float, stopped: bool) -> None:
    told: list[dict[str, Any]] = []
    calls: list[str] = []
    given = SimpleNamespace(profile=False, cpu=False, step_tokens=100_000, least_speed=60_000)
    log: Callable[..., None] = lambda **record: told.append(record)  # noqa: E731
    model = SimpleNamespace(stop_compiling=lambda: calls.append("stopped"))
    checks = gpu_train.Checks(SimpleNamespace(log=log), model, given)  # type: ignore[arg-type]
    for number in range(40):  # the first step took a minute
        checks.step(SimpleNamespace(progress=SimpleNamespace(seconds=60 + seconds * number, step=number + 1)))
    assert told[0]["tokens_per_second"] == pytest.approx(100_000 / seconds)
    assert calls == ["stopped"] * stopped
    assert [record["compiled"] for record in told] == ([True, False] if stopped else [True])


def test_it_needs_few_packages() -> None:
    """Those that a machine for training has; the test blocks the others that midfill depends on."""
    absent = "accelerate cattrs lsprotocol peft platformdirs pygls rapidfuzz rich starlette typer uvicorn websockets"
    modules = "trainer losses from_gguf windows"
    code = f"""
import sys
sys.modules |= dict.fromkeys({absent.split()!r})
import bench.gpu_train
import midfill_lab.recipe.parts
for module in {modules.split()!r}:
    __import__("midfill_lab.training." + module)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
