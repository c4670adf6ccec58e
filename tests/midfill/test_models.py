"""`midfill models`, and the section of the doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inference.loading.choices import choices
from midfill.commands import app
from midfill.doctor.models import models
from protocol.settings import Settings
from tests.inference.gguf_files import write_gguf


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with three GGUF files in llama.cpp's cache: a whole one, one without markers, and a damaged one."""
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = tmp_path / ".cache" / "llama.cpp"
    monkeypatch.setenv("LLAMA_CACHE", str(cache))
    write_gguf(cache / "coder.gguf")
    write_gguf(cache / "chat.gguf", markers=())
    (cache / "damaged.gguf").write_bytes(b"GGUF")
    return cache


def test_json_for_programs(home: Path) -> None:
    result = CliRunner().invoke(app, ["models", "--json"])
    assert result.exit_code == 0
    found = {model["name"]: model for model in json.loads(result.stdout)}
    assert found["tiny"]["problem"] == ""
    assert found["tiny"]["neededBytes"] > found["tiny"]["sizeBytes"]
    coder = found[str(home / "coder.gguf")]
    assert (coder["family"], coder["quantization"], coder["fimFormat"]) == ("qwen2", "Q4_K_M", "qwen-coder")
    assert "damaged" in found[str(home / "damaged.gguf")]["problem"]
    assert next(iter(found)) == "bundled"


def test_text_for_people(home: Path) -> None:
    result = CliRunner().invoke(app, ["models"])
    assert result.exit_code == 0
    assert f"{home / 'coder.gguf'} llama.cpp\n  qwen2, " in result.stdout
    assert "cannot run: " in result.stdout


def test_a_model_that_does_not_fit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 2**20, "total": 2**33})())
    (tiny,) = [choice for choice in choices(Settings(), ()) if choice.model.name == "tiny"]
    assert "and 1 MB are free" in tiny.problem


def test_the_doctor_lists_them_without_a_problem(home: Path) -> None:
    section = models(Settings(), ())
    assert section.problems == ()
    facts = dict(section.facts)
    assert facts["tiny"].startswith("llama, 21 MB, BF16, midfill")
    assert facts["bundled"].startswith("llama, 90 MB, Q4_1, smollm2")
    assert "cannot run" in facts[str(home / "damaged.gguf")]
