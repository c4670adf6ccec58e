"""`midfill models`, and what the doctor says of the same models."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copy

import numpy as np
import pytest
from typer.testing import CliRunner

from inference.loading.choices import choices
from inference.loading.options import EngineOptions
from inference.remote import connecting
from midfill.commands import app
from midfill.doctor.models import model
from protocol.errors import BadModel
from protocol.settings import Settings
from tests.inference.gguf_files import QWEN_MARKERS, write_gguf
from tests.inference.tiny import write_tokenizer
from tests.inference.tiny_gguf import tokenizer_fields, write_file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with three GGUF files in llama.cpp's cache: a whole one, one without markers, and a damaged one."""
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
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


@pytest.fixture
def hybrid(home: Path) -> Path:
    """A whole file of an architecture that midfill's own engine does not run."""
    write_tokenizer(home / "tokenizer.json", markers=QWEN_MARKERS)
    fields = {"general.architecture": "qwen35moe"} | tokenizer_fields(home / "tokenizer.json", "qwen35")
    return write_file(home / "hybrid.gguf", fields, {"token_embd.weight": (np.zeros((2, 32), np.float32), "F32")})


@pytest.fixture
def llama_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name, the only one on the PATH."""
    program = tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return program


def test_what_only_llama_server_runs_is_offered_with_it(hybrid: Path, llama_server: Path) -> None:
    (choice,) = [choice for choice in choices(Settings(), ()) if choice.model.name == str(hybrid)]
    assert (choice.problem, choice.as_json()["runsWith"]) == ("", "llama-server")
    assert choice.summary.endswith("qwen-coder, runs with llama-server")
    section = model(Settings(model=str(hybrid)), ())
    assert section.problems == ()
    assert f"llama-server: {llama_server}, since midfill's own engine does not run it" in dict(section.facts)["runs on"]
    llama_server.unlink()
    (choice,) = [choice for choice in choices(Settings(), ()) if choice.model.name == str(hybrid)]
    for problem in (choice.problem, *model(Settings(model=str(hybrid)), ()).problems):
        assert "'qwen35moe'" in problem
        assert "install llama.cpp, with its llama-server on the PATH" in problem


def test_a_setting_that_the_core_refuses_is_no_reason_for_another_engine(home: Path, llama_server: Path, tiny_gguf: str) -> None:
    copy(tiny_gguf, home / "whole.gguf")
    settings = Settings(model=str(home / "whole.gguf"), weights="fp8")
    (choice,) = [choice for choice in choices(settings, ()) if choice.model.name == settings.model]
    assert (choice.runs_with, (choice.problem,)) == ("", model(settings, ()).problems)


def test_llama_server_is_started_for_what_it_alone_runs(
    hybrid: Path, llama_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(connecting, "connect", lambda options, _: opened.append(options.engine))
    options = EngineOptions(str(hybrid))
    assert not connecting.EngineOpener(options).needs_download
    connecting.open_engine(options)
    assert opened == [f"llama-server={llama_server}"]
    hybrid.write_bytes(hybrid.read_bytes()[:-1])
    with pytest.raises(BadModel, match="its header describes"):
        connecting.EngineOpener(options)


def test_a_model_that_does_not_fit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 2**20, "total": 2**33})())
    (tiny,) = [choice for choice in choices(Settings(), ()) if choice.model.name == "tiny"]
    assert "and 1 MB are free" in tiny.problem
