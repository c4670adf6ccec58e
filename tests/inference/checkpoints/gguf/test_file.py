from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import find_local_checkpoint, fingerprint, open_checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.checkpoints.local_models import describe
from inference.checkpoints.other_programs import FoundModel
from inference.loading.engine import examine, load_engine
from inference.loading.options import EngineOptions
from protocol.errors import BadInput, BadModel
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.inference.tiny_gguf import read_back, split, tokenizer_fields, write_file, write_gguf


@pytest.fixture(scope="module")
def file(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tiny_checkpoint)


def test_a_file_and_the_folder_with_it_name_one_checkpoint(file: Path, tiny_checkpoint: Path) -> None:
    for path in (file, file.parent):
        checkpoint = find_local_checkpoint(str(path))
        assert checkpoint is not None
        assert (checkpoint.name, checkpoint.path) == (str(path), file)
    original = open_checkpoint(tiny_checkpoint, "tiny")
    assert isinstance(checkpoint.architecture, Architecture)
    assert checkpoint.architecture.hidden == 48
    assert checkpoint.tokenizer().encode("def f():\n") == original.tokenizer().encode("def f():\n")
    theirs, ours = (each.weights()[0].tensors for each in (original, checkpoint))
    assert {name: tensor.shape for name, tensor in ours.items()} == {name: tensor.shape for name, tensor in theirs.items()}


def test_a_folder_of_safetensors_stays_one(file: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_checkpoint, tmp_path / "both")
    shutil.copy(file, tmp_path / "both")
    assert not isinstance(open_checkpoint(tmp_path / "both", "both"), GgufCheckpoint)


def test_a_folder_with_several_models_is_refused_with_their_names(file: Path, tmp_path: Path) -> None:
    for name in ("a.gguf", "mmproj-a.gguf"):
        shutil.copy(file, tmp_path / name)
    assert open_checkpoint(tmp_path, "a").path == tmp_path / "a.gguf"
    shutil.copy(file, tmp_path / "b.gguf")
    with pytest.raises(BadModel, match=r"has several models: choose one of a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path, "a")


def test_a_missing_file_is_no_name_of_the_hub() -> None:
    with pytest.raises(BadModel, match=r"no model 'nowhere/tiny\.gguf'"):
        find_local_checkpoint("nowhere/tiny.gguf")


def test_a_file_can_be_checked_without_torch(file: Path) -> None:
    assert examine(EngineOptions(str(file)))
    code = (
        "import sys; from inference.loading.engine import examine\n"
        "from inference.loading.options import EngineOptions\n"
        f"assert examine(EngineOptions({str(file)!r}))\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_fingerprint_changes_with_weights_and_tokenizer(file: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    changed = [
        write_gguf(tmp_path / "pre.gguf", tiny_checkpoint, changes={"tokenizer.ggml.pre": "gpt-2"}),
        write_gguf(tmp_path / "f16.gguf", tiny_checkpoint, "F16"),
        file,
    ]
    prints = {fingerprint(open_checkpoint(path, "tiny"), "float32") for path in changed}
    assert len(prints) == 3


def test_training_asks_for_a_folder(file: Path) -> None:
    with pytest.raises(BadModel, match=r"tiny\.gguf is a GGUF file: this needs a folder"):
        _ = open_checkpoint(file, "tiny").folder


@pytest.mark.parametrize("tensors_in_first", [0, 5])
def test_a_model_in_parts_computes_what_it_does_in_one(
    file: Path, tiny_checkpoint: Path, tmp_path: Path, tensors_in_first: int
) -> None:
    first, _ = split(file, tmp_path, tiny_checkpoint, tensors_in_first)
    request = CompletionRequest("a.py", Prompt("x = 1\n", "\n", "y ="), max_tokens=8, stop=StopRule(indent=0))
    engines = [load_engine(EngineOptions(str(path), context_tokens=256, threads=1)) for path in (file, first)]
    texts = [engine.complete(request).text for engine in engines]
    assert texts[0] == texts[1] != ""
    whole, parts = (describe(FoundModel("tiny", "llama.cpp", path)) for path in (file, first))
    assert (parts.problem, parts.parameters) == ("", whole.parameters)
    assert fingerprint(open_checkpoint(first, "tiny"), "") != fingerprint(open_checkpoint(file, "tiny"), "")


def test_the_parts_of_a_model_are_one_checkpoint(file: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    first, second = split(file, tmp_path, tiny_checkpoint)
    checkpoint = open_checkpoint(tmp_path, "parts")
    files = checkpoint.weights()
    assert [part.path for part in files] == [first, second]
    (whole,) = open_checkpoint(file, "whole").weights()
    assert {name for part in files for name in part.tensors} == set(whole.tensors)
    with pytest.raises(BadModel, match="is part 2 of 2: choose the first"):
        open_checkpoint(second, "parts")
    second.unlink()
    with pytest.raises(BadModel, match=r"00002-of-00002\.gguf is missing"):
        open_checkpoint(first, "parts")
    with pytest.raises(BadModel, match=r"one of 2 parts \(split\.count\), and is not named like one"):
        open_checkpoint(first.rename(tmp_path / "first.gguf"), "parts")


@pytest.mark.parametrize(
    ("name", "values", "kind", "reason"),
    [
        ("blk.0.ffn_gate_exps.weight", np.ones((2, 32), np.float32), "F32", "no use for the tensor 'blk.0.ffn_gate_exps"),
        ("nonsense", np.ones((2, 32), np.float32), "F32", "no use for the tensor 'nonsense'"),
        ("blk.0.attn_q.weight", np.ones((2, 1), np.uint8), "I8", r"attn_q.weight is of the type I8"),
        ("blk.0.attn_q.bias", np.ones(64, np.float32), "Q8_0", r"attn_q.bias of the type Q8_0 has the shape \(64,\)"),
    ],
)
def test_tensors_that_cannot_be_used_are_named(
    file: Path, tiny_checkpoint: Path, tmp_path: Path, name: str, values: Any, kind: str, reason: str
) -> None:
    fields, tensors = read_back(file, tiny_checkpoint)
    other = write_file(tmp_path / "other.gguf", fields, tensors | {name: (values, kind)})
    with pytest.raises(BadModel, match=reason):
        examine(EngineOptions(str(other)))


def test_more_tokens_than_rows_are_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    fields = tokenizer_fields(tiny_checkpoint / "tokenizer.json")
    tokens = [*fields["tokenizer.ggml.tokens"], "one more"]
    path = write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint, changes={"tokenizer.ggml.tokens": tokens})
    with pytest.raises(BadModel, match=f"{len(tokens)} tokens, and an embedding of {len(tokens) - 1}"):
        open_checkpoint(path, "tiny")


def test_layers_that_are_missing_are_counted(tiny_checkpoint: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint, changes={"llama.block_count": 2**31})
    with pytest.raises(BadModel, match="block_count is 2147483648, and it has 2 layers"):
        open_checkpoint(path, "tiny")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(file: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(file.read_bytes())
    header = min(tensor.start for tensor in open_checkpoint(file, "tiny").weights()[0].tensors.values())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.one_of(st.integers(0, 1500), st.integers(0, header - 9)))
        content[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    with suppress(BadModel, BadInput):
        assert examine(EngineOptions(str(damaged)))
