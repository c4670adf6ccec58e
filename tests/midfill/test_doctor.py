"""`midfill doctor`: what it finds, and that it is quick about it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from inference.loading.choices import choose_device
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions, Gpu, find_gpus
from midfill.commands import app
from midfill.doctor.checks import cores
from midfill.doctor.findings import Section, as_json, cpu_features, folders, hardware, settings_in_force
from midfill.doctor.models import model
from protocol.messages import PROTOCOL_VERSION, megabytes
from protocol.rendezvous import CoreAddress, address_file, hold, read_or_make_token, write_address
from protocol.settings import Settings
from tests.inference.generic_models import write_model

GPU = Gpu("Some GPU", 24 * 2**30, 20 * 2**30, (8, 6))


def test_the_doctor_says_that_llama_server_runs_a_quantized_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.loading.choices.version_of", lambda _: "2.13.0")
    monkeypatch.setattr("midfill.doctor.models.find_llama_server", lambda: "/usr/bin/llama-server")
    monkeypatch.setattr("inference.loading.placement.SMALL_BYTES", 2**20)
    facts = dict(model(Settings(), (GPU,)).facts)
    assert facts["runs on"] == "llama-server: /usr/bin/llama-server keeps the file's weights quantized on the GPU"
    assert "memory" not in facts
    monkeypatch.undo()
    monkeypatch.setattr("inference.loading.choices.version_of", lambda _: "2.13.0")
    assert dict(model(Settings(), (GPU,)).facts)["device"] in ("cpu", "cuda")  # by the kernel, for one as small
    assert dict(model(Settings(device="cuda"), (GPU,)).facts)["runs on"] == "GPU: the setting device is cuda"


def test_a_sound_installation(tiny_model: str, runtime: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--json", "--model", tiny_model, "--max-tokens", "32"])
    found = json.loads(result.stdout)
    assert found["problems"] == []
    assert result.exit_code == 0
    assert found["sections"]["installed"]["pygls"] == version("pygls")
    assert found["sections"]["model"]["FIM format"] == "midfill, fragments suffice"
    assert found["sections"]["model"]["context"] == "512 tokens, of 512 that the model supports"
    assert found["sections"]["settings"]["maxTokens"] == "32 (--max-tokens)"
    assert "no core is running" in found["sections"]["core"]["this machine"]


def test_a_gguf_file(tiny_gguf: str, runtime: Path) -> None:
    section = model(Settings(model=tiny_gguf), ())
    facts = dict(section.facts)
    assert not section.problems
    assert facts["files"] == tiny_gguf
    assert facts["weights"].endswith("in F32")
    assert facts["architecture"] == "llama, 2 layers"
    assert facts["FIM format"].startswith("midfill")


def test_problems_end_with_status_1(tmp_path: Path, runtime: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--model", str(tmp_path)])
    assert result.exit_code == 1
    last = result.stdout.splitlines()[-1]  # what stands above may have left the terminal
    assert last.startswith("✗ model: ")
    assert "config.json" in last
    assert result.stdout.count("✗") == 1


def test_what_is_at_its_default_is_shown_on_request(tiny_model: str, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    short, full = (CliRunner().invoke(app, ["doctor", "--model", tiny_model, *more]).stdout for more in ([], ["--all"]))
    assert short.endswith("✓ no problems found\n")
    settings = short.partition("\nsettings\n")[2].split("\n\n")[0]
    assert settings.split() == ["model", tiny_model, "(--model)"]
    for hidden in ("(default)", "KV cache", "lsprotocol"):
        assert hidden not in short
        assert hidden in full
    assert len(short.splitlines()) < len(full.splitlines()) / 2


def test_torch_is_not_imported(tiny_model: str, runtime: Path) -> None:
    program = (
        "import asyncio, sys; from midfill.doctor.command import examine; from protocol.settings import Settings;"
        f"asyncio.run(examine(Settings(model={tiny_model!r}))); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_cpu_features(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert cpu_features(cpuinfo) == ("AVX2", "AVX-512", "AVX-512 bf16")
    assert cpu_features(tmp_path / "missing") == ()


def test_gpus(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Some GPU, 24576, 20480, 8.6'\n")
    program.chmod(0o755)
    assert find_gpus({"PATH": str(tmp_path)}) == (GPU,)
    program.write_text("#!/bin/sh\necho 'NVIDIA GB10, [N/A], [N/A], 12.1'\n")
    (shared,) = find_gpus({"PATH": str(tmp_path)})
    assert shared.total_bytes == psutil.virtual_memory().total
    assert 0 < shared.free_bytes < shared.total_bytes
    program.write_text("#!/bin/sh\nexit 9\n")
    assert find_gpus({"PATH": str(tmp_path)}) == ()
    assert find_gpus({"PATH": ""}) == ()


@pytest.mark.parametrize(
    ("settings", "gpus", "build", "name", "problem"),
    [
        (Settings(), (), "2.13.0+cpu", "cpu", ""),
        (Settings(), (GPU,), "2.13.0", "cuda", ""),
        (Settings(), (GPU,), "2.13.0+cpu", "cpu", ""),
        (Settings(device="cpu"), (GPU,), "2.13.0", "cpu", ""),
        (Settings(device="cuda:1"), (), "2.13.0", "cuda:1", "there is no GPU"),
        (Settings(device="cuda"), (GPU,), "2.13.0+cpu", "cuda", "a build without CUDA"),
        (Settings(device="cuda:1"), (GPU,), "2.13.0", "cuda:1", "the last GPU is cuda:0"),
        (Settings(device="cuda:0"), (GPU,), "2.13.0", "cuda:0", ""),
        (Settings(device="banana"), (GPU,), "2.13.0", "banana", "unknown device 'banana'"),
        (Settings(device="gpu"), (GPU,), "2.13.0", "gpu", "unknown device 'gpu'"),
        (Settings(device="cuda:x"), (GPU,), "2.13.0", "cuda:x", "unknown device 'cuda:x'"),
        (Settings(device="mps"), (), "2.13.0", "mps", "the device mps needs Apple silicon"),
    ],
)
def test_device(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, gpus: tuple[Gpu, ...], build: str, name: str, problem: str
) -> None:
    monkeypatch.setattr("inference.loading.choices.version_of", lambda _: build)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    device = choose_device(settings, gpus)
    assert device.name == name
    assert problem in device.problem
    assert bool(problem) == bool(device.problem)


def test_weights_that_the_core_would_refuse_are_a_problem(tiny_model: str) -> None:
    (problem,) = model(Settings(model=tiny_model, device="cpu", weights="fp8"), ()).problems
    assert problem.startswith("fp8 weights need a CUDA GPU, and the model runs on cpu: choose")


def test_a_hub_model_that_is_not_here_is_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    section = model(Settings(model="some-owner/no-such-model"), ())
    assert "not in the local cache" in dict(section.facts)["files"]
    assert section.problems == ()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (problem,) = model(Settings(model="some-owner/no-such-model"), ()).problems
    assert problem.startswith("some-owner/no-such-model is not in the local cache, and HF_HUB_OFFLINE forbids")


def test_where_files_are(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_CACHE_DIR", str(tmp_path / "kv"))
    assert dict(folders(Settings()).minor)["KV cache"] == f"{tmp_path / 'kv'}, not created yet"
    (tmp_path / "kv" / "pages").mkdir(parents=True)
    (tmp_path / "kv" / "pages" / "a").write_bytes(bytes(3_000_000))
    facts = dict(folders(Settings()).minor)
    assert facts["KV cache"] == f"{tmp_path / 'kv'}, 3 MB"
    assert facts["cores and logs"].startswith(str(runtime))


def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for variable in ("MIDFILL_CACHE_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "file" / "folder"))
    kv, index, counts = folders(Settings()).problems
    assert kv.startswith(f"no KV survives its core, since {tmp_path}/file/folder cannot be written: ")
    assert index.startswith(f"no signature of another file is found, since {tmp_path}/file/folder/midfill/index cannot")
    assert counts.startswith(f"nothing is counted, since {tmp_path}/file/folder/midfill cannot")
    assert not folders(Settings(disk_mb=0, other_files=False, statistics=False)).problems


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "gone"))
    assert dict(hardware(()).facts)["disk"].endswith(f"free in {tmp_path}")


def test_the_plan_of_memory_has_a_total(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available, total = 6 * 2**30, 8 * 2**30

    monkeypatch.setattr("psutil.virtual_memory", Memory)
    facts = dict(model(Settings(model=tiny_model), ()).facts)
    assert "up to 134 MB for resident KV" in facts["memory"]
    (total,) = re.findall(r"up to (\d+) MB in all, and about 120 MB for the process, 350 MB if it imports torch", facts["memory"])
    assert 134 < int(total) < 400


def test_states_of_recurrent_layers_are_in_the_plan_by_which_the_core_loads(tmp_path: Path) -> None:
    folder = str(write_model(tmp_path, "NemotronH", recurrent=True))
    facts = dict(model(Settings(model=folder, device="cpu"), ()).facts)
    (of_states,) = re.findall(r"for resident KV and states \((\d+ MB) of it\)", facts["memory"])
    engine = load_engine(EngineOptions(folder, device="cpu", threads=1))
    assert {tier.name: megabytes(tier.budget_bytes) for tier in engine.stats().tiers}["snapshots"] == of_states


def test_memory_is_planned_for_the_device(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.loading.choices.version_of", lambda _: "2.13.0")
    facts = dict(model(Settings(model=tiny_model), (GPU,)).facts)
    assert facts["dtype"] == "bfloat16"
    assert facts["memory"].endswith("21.5 GB are free")
    assert "up to 2.1 GB for resident KV" in facts["memory"]
    old = replace(GPU, capability=(7, 5))
    assert dict(model(Settings(model=tiny_model), (old,)).facts)["dtype"] == "float16"
    full = replace(GPU, free_bytes=10**6)
    elsewhere = model(Settings(model=tiny_model), (full,))
    assert not elsewhere.problems
    assert dict(elsewhere.facts)["runs on"].startswith("CPU: the model does not fit the GPU's free memory")
    assert dict(elsewhere.facts)["device"] == "cpu"
    (problem,) = model(Settings(model=tiny_model, device="cuda"), (full,)).problems
    assert "of cuda's memory in bfloat16, and 1 MB are free" in problem


def test_where_settings_come_from() -> None:
    environment = {"MIDFILL_MAX_TOKENS": "32", "MIDFILL_MODEL": "a"}
    settings = Settings(max_tokens=32, model="b", core_token="secret")
    section = settings_in_force(settings, environment, ())
    assert dict(section.facts) == {
        "maxTokens": "32 (MIDFILL_MAX_TOKENS)",
        "model": "b (--model)",
        "coreToken": "set (--core-token)",
    }
    assert dict(section.minor)["strategy"] == "efim (default)"
    assert "secret" not in str(section)


def test_a_bad_variable_is_one_problem_among_others(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_MAX_TOKENS", "many")
    monkeypatch.setenv("MIDFILL_DEVICE", "")
    result = CliRunner().invoke(app, ["doctor", "--json", "--model", str(tmp_path)])
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert len(found["problems"]) == 2
    assert "config.json" in found["problems"][0]
    assert found["problems"][1].startswith("MIDFILL_MAX_TOKENS = 'many': expected whole number")
    assert found["sections"]["settings"]["maxTokens"] == "64 (default)"
    assert found["sections"]["settings"]["device"] == "auto (default)"


async def test_cores_that_have_gone(runtime: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    write_address(address_file(runtime, "m"), CoreAddress("ws://127.0.0.1:9/ws", process.pid, "m"))
    section = await cores(Settings())
    assert "crashed" in dict(section.facts)["m"]
    assert section.problems == ()


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (PROTOCOL_VERSION, "midfill core stop"),
        (1, "another version of midfill: close the programs that use it, or midfill core stop"),
    ],
)
async def test_a_core_that_does_not_answer_or_is_of_another_version(runtime: Path, version: int, told: str) -> None:
    file = address_file(runtime, "m")
    write_address(file, CoreAddress("ws://127.0.0.1:9/ws", os.getpid(), "m", protocol_version=version))
    with hold(file):
        section = await cores(Settings())
    assert f"process {os.getpid()}" in dict(section.facts)["m"]
    (problem,) = section.problems
    assert told in problem


@pytest.mark.parametrize(
    ("settings", "state", "told"),
    [
        (Settings(core="ws://127.0.0.1:9/ws", core_token="secret"), "unreachable", "correct the settings core and core_token"),
        (Settings(core="wss://gpu-box:8765"), "not asked", "set coreToken"),  # this machine's token goes to no other
    ],
)
async def test_a_core_on_another_machine(runtime: Path, settings: Settings, state: str, told: str) -> None:
    section = await cores(settings)
    assert dict(section.facts)["other machine"] == state
    (problem,) = section.problems
    assert told in problem


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
async def test_a_token_that_others_can_read(runtime: Path) -> None:
    read_or_make_token(runtime)
    (runtime / "token").chmod(0o644)
    (problem,) = (await cores(Settings())).problems
    assert "chmod 600" in problem


async def test_an_address_file_that_is_none(runtime: Path) -> None:
    (runtime / "core-x.json").write_text("{}")
    (problem,) = (await cores(Settings())).problems
    assert "remove the file" in problem


def test_json() -> None:
    found = as_json([Section("a", (("b", "c"),)), Section("d", (), ("e",))])
    assert found == {"ok": False, "problems": ["e"], "sections": {"a": {"b": "c"}, "d": {}}}
    assert (megabytes(5_400_000), megabytes(24e9)) == ("5 MB", "24.0 GB")


@pytest.mark.parametrize(
    ("name", "said"),
    [("a.py", "on"), (".env", "excluded: This file gets no suggestions"), ("b.py", "off for python: Suggestions are off")],
)
def test_a_file_is_explained_in_the_words_of_the_editors(
    tmp_path: Path, tiny_model: str, runtime: Path, name: str, said: str
) -> None:
    (tmp_path / name).write_text("a\n")
    off = ["--disabled-languages", "python"] if name == "b.py" else []
    command = ["doctor", str(tmp_path / name), "--json", "--model", tiny_model, *off]
    found = json.loads(CliRunner().invoke(app, command).stdout)
    assert found["sections"]["suggestions"][str(tmp_path / name)].startswith(said)
