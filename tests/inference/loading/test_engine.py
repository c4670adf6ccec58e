from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.backends.cpu.library import LEVEL_VARIABLE, unavailable_reason
from inference.backends.generic import load_generic
from inference.checkpoints.checkpoint import Checkpoint, FolderCheckpoint
from inference.loading.engine import examine, load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from inference.text.fim import AUTO
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadInput, BadModel
from protocol.messages import CompletionRequest, Prompt
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import KERNEL_SHAPE, write_gguf

REQUEST = CompletionRequest("a.py", Prompt("def f():\n", "\n", "    x"), 4)


@pytest.fixture
def options(tiny_checkpoint: Path) -> EngineOptions:
    return EngineOptions(str(tiny_checkpoint), threads=1)


def test_engine_says_what_it_is_and_reports_progress(options: EngineOptions) -> None:
    reports: list[tuple[str, float | None]] = []
    engine = load_engine(options, lambda what, share: reports.append((what, share)))
    assert (engine.info.model, engine.info.device) == (options.model, "cpu")
    assert engine.info.context_tokens == 512  # all that the model was made for
    assert 1 < engine.info.chars_per_token < 10
    assert [share for what, share in reports if what == "reading the weights"] == [0.5, 1.0]
    assert engine.complete(REQUEST).usage.forwards >= 1


def test_the_context_is_no_longer_than_the_model_was_made_for(options: EngineOptions) -> None:
    for load in (load_engine, load_dry_engine):
        assert load(replace(options, context_tokens=100_000)).info.context_tokens == 512
        assert load(replace(options, context_tokens=100)).info.context_tokens == 100


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_dtypes(options: EngineOptions, dtype: str) -> None:
    engine = load_engine(replace(options, dtype=dtype))  # type: ignore[arg-type]
    assert engine.complete(REQUEST).usage.generated_tokens >= 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "toaster"}, "unknown device 'toaster'"),
        ({"device": "cuda"}, "no CUDA"),
        ({"dtype": "int3"}, "unknown dtype 'int3'"),
        ({"context_tokens": 10}, "tokens, not 10"),
        ({"threads": -1}, "threads must be 0 or more, not -1"),
    ],
)
def test_impossible_options_are_named(options: EngineOptions, changes: dict[str, object], message: str) -> None:
    import torch

    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(BadInput, match=message):
        load_engine(replace(options, **changes))  # type: ignore[arg-type]


def test_what_was_resident_is_found_after_a_restart(options: EngineOptions, tmp_path: Path) -> None:
    kept = replace(options, cache_folder=tmp_path / "kv")
    first = load_engine(kept)
    text = first.complete(REQUEST).text
    first.close()
    second = load_engine(kept)
    again = second.complete(REQUEST)
    assert (again.usage.recomputed_tokens, again.text) == (1, text)
    other = load_engine(kept)  # while the second is there
    assert other.complete(REQUEST).usage.recomputed_tokens == again.usage.prompt_tokens
    second.close()
    wide = load_engine(replace(kept, dtype="float16"))
    assert wide.complete(REQUEST).usage.recomputed_tokens == again.usage.prompt_tokens
    wide.close()


def test_torch_has_the_threads_of_the_setting_beside_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = write_checkpoint(tmp_path / "tiny", **KERNEL_SHAPE)
    monkeypatch.setenv(LEVEL_VARIABLE, "portable")
    torch.set_num_threads(2)
    load_engine(EngineOptions(str(checkpoint), device="cpu", dtype="float32", threads=1)).close()
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("kind", ["folder", "GGUF"])
def test_each_arithmetic_keeps_its_kv_apart(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = write_checkpoint(tmp_path / "tiny", **KERNEL_SHAPE)
    path = checkpoint if kind == "folder" else write_gguf(tmp_path / "tiny.gguf", checkpoint, "Q8_0")
    by_kernel = EngineOptions(str(path), threads=1, dtype="float32", cache_folder=tmp_path / "kv")
    by_torch = replace(by_kernel, kernel=False)

    def folder(options: EngineOptions) -> Path:
        load_engine(options).close()
        (lock,) = (tmp_path / "kv").rglob("lock")
        return lock.parent

    def load_modules(checkpoint: Checkpoint, shape: object, context: int, device: torch.device, dtype: torch.dtype, *_):
        return load_generic(checkpoint.path, context, device, dtype)

    folders = [folder(by_kernel), folder(by_torch), folder(replace(by_kernel, weights="int8"))]
    with monkeypatch.context() as patched:
        patched.setattr("inference.loading.components.load_decoder", load_modules)
        folders.append(folder(by_torch))
    with monkeypatch.context() as patched:
        patched.setenv(LEVEL_VARIABLE, "portable")
        folders.append(folder(by_kernel))
    with monkeypatch.context() as patched:
        patched.setattr("inference.backends.cpu.model.library_digest", lambda: "another build")
        folders.append(folder(by_kernel))
    assert len(set(folders)) == len(folders)
    assert folder(by_kernel) == folders[0]


def test_weights_that_others_have_quantized_are_refused(options: EngineOptions, tmp_path: Path) -> None:
    folder = tmp_path / "fp8"
    shutil.copytree(options.model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(BadModel, match="fp8: its weights are quantized by fp8, which midfill does not read"):
        load_engine(replace(options, model=str(folder)))
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].to(torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(BadModel, match=r"up_proj.weight is of the type F8_E4M3, expected F64, F32"):
        load_engine(replace(options, model=str(folder)))


def test_what_can_be_told_before_loading(options: EngineOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert examine(options)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert not examine(EngineOptions("someone/tiny"))
    with pytest.raises(BadInput, match="unknown FIM format 'nothing'"):
        examine(replace(options, fim_format="nothing"))
    with pytest.raises(BadInput, match="tokens, not 10"):
        examine(replace(options, context_tokens=10))


def test_what_was_examined_is_read_once_unless_the_files_have_changed(
    options: EngineOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(options.model, tmp_path / "model")
    options = replace(options, model=str(tmp_path / "model"))
    read: list[TextTokenizer] = []
    tokenizer_of = FolderCheckpoint.tokenizer

    def counted(checkpoint: FolderCheckpoint, fim_format: str = AUTO) -> TextTokenizer:
        read.append(tokenizer_of(checkpoint, fim_format))
        return read[-1]

    monkeypatch.setattr(FolderCheckpoint, "tokenizer", counted)
    examined = examine(options)
    with closing(load_engine(options, None, examined)) as engine:
        assert (len(read), engine.tokenizer) == (1, read[0])
    (tmp_path / "model" / "model.safetensors").touch()
    with closing(load_engine(options, None, examined)) as engine:
        assert (len(read), engine.tokenizer) == (2, read[1])


IMPORTS = """
import json, sys
from inference.loading.options import EngineOptions
from inference.text.fim import AUTO
from inference.text.tokenization import TextTokenizer
from inference.loading import engine as loading
from inference.core import scheduler
from inference.core import app, process
from inference.text import prompts, fim, tokenization, stops
from protocol.messages import CompletionRequest, Prompt
assert loading.examine(EngineOptions(sys.argv[1]))
engine = loading.load_dry_engine(EngineOptions(sys.argv[1]))
engine.complete(CompletionRequest("a.py", Prompt("x", "y"), 4))
print(json.dumps(sorted({"torch", "transformers", "pygls", "lsp_server", "midfill"} & set(sys.modules))))
"""


def test_counting_and_serving_need_no_torch_until_a_model_is_loaded(tiny_checkpoint: Path) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS, str(tiny_checkpoint)], check=True, capture_output=True)
    assert json.loads(done.stdout) == []


ON_KERNEL = """
import sys
from pathlib import Path
from inference.core import process
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from protocol.messages import CompletionRequest, Prompt, Sampling
options = EngineOptions(sys.argv[1], device="cpu", healing="on", cache_folder=Path(sys.argv[2]), context_tokens=512)
requests = [CompletionRequest("a.py", Prompt("def f(value):\\n" * 30, "\\n", "    retu"), 8, best_of=best) for best in (1, 3)]
requests.append(CompletionRequest("a.py", requests[0].prompt, 8, sampling=Sampling(0.8, seed=1)))
engine = load_engine(options)
texts = [engine.complete(request).text for request in requests]
engine.close()
again = load_engine(options)
assert again.complete(requests[0]).usage.recomputed_tokens < 32
assert [again.complete(request).text for request in requests] == texts
assert "torch" not in sys.modules
"""


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
@pytest.mark.parametrize("scaling", ["none", "linear", "yarn"])
def test_the_kernel_runs_a_quantized_file_without_torch(tmp_path: Path, scaling: str) -> None:
    """Which takes a second to import, and 250 MB; KV goes to disk and back."""
    changes = {"llama.rope.scaling.type": scaling, "llama.rope.scaling.factor": 4.0}
    file = write_gguf(tmp_path / "tiny.gguf", write_checkpoint(tmp_path / "tiny", **KERNEL_SHAPE), "Q8_0", changes=changes)
    subprocess.run([sys.executable, "-c", ON_KERNEL, str(file), str(tmp_path / "kv")], check=True)


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _replace(file: Path) -> None:
    """By another one of the same size."""
    other = file.with_name("other")
    other.write_bytes(file.read_bytes()[:-1] + b"x")
    other.replace(file)


@pytest.mark.parametrize("is_gguf", [True, False])
@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("change", [Path.unlink, _cut, _replace])
def test_a_file_that_changes_while_it_is_read_is_told(
    tmp_path: Path, change: Callable[[Path], None], kernel: bool, is_gguf: bool
) -> None:
    folder = write_checkpoint(tmp_path / "tiny", **KERNEL_SHAPE, num_hidden_layers=3)
    model = write_gguf(tmp_path / "tiny.gguf", folder, "Q8_0") if is_gguf else folder
    file = model if is_gguf else folder / "model.safetensors"
    steps: list[str] = []

    def report(what: str, share: float | None) -> None:
        if share is not None and not steps:
            change(file)
            steps.append(what)

    options = EngineOptions(str(model), device="cpu", threads=1, kernel=kernel)
    with pytest.raises(BadModel, match=rf"^{re.escape(str(model))}\S* (cannot be read|is shorter|changed)"):
        load_engine(options, report)
    assert steps == ["reading the weights"]


@pytest.mark.parametrize(("budget", "capacity"), [(0, 2), (2 * 5 * 64 * 384, 5), (2**30, 8)])
def test_there_are_as_many_slots_as_suit_the_store(tiny_checkpoint: Path, budget: int, capacity: int) -> None:
    options = EngineOptions(str(tiny_checkpoint), dtype="float32", context_tokens=64, store_budget_bytes=budget)
    assert load_engine(options).capacity == capacity
    assert load_engine(replace(options, slots=3)).capacity == 3
    assert load_engine(replace(options, batching=False)).capacity == 1
    with pytest.raises(BadInput, match="slots must be 0 or more, not -1"):
        load_engine(replace(options, slots=-1))
