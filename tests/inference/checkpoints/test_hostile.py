"""Whatever is named as a model, and whatever its files hold: it opens, or a sentence says why not."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.checkpoints.checkpoint import find_local_checkpoint
from inference.checkpoints.local_models import describe
from inference.checkpoints.other_programs import FoundModel
from inference.loading import choices
from inference.loading.engine import examine, load_engine
from inference.loading.options import EngineOptions
from inference.remote.server import read_engine_address
from midfill.doctor.models import model as doctor_of_model
from protocol.errors import BadInput, BadModel
from protocol.rendezvous import core_name, resolve_engine, resolve_model
from protocol.settings import Settings

WORDS = st.one_of(st.text(), st.text("~/.:=\\ \n-_[]@%?#1é", max_size=300))
LEADS = ("", "ollama:", "lmstudio:", "./", "~", "~nobody/", "/", "a/b:", "hf.co/", "C:\\", "file://", "bundled")
NAMES = st.builds(str.__add__, st.sampled_from(LEADS), WORDS)
ENGINES = ("", "openai=", "llama-server=", "openai=http://", "llama-server=https://[", "openai=ws://", "llama-server=~")


@given(NAMES, st.builds(str.__add__, st.sampled_from(ENGINES), WORDS))
def test_any_name_and_any_engine_is_found_or_refused(model: str, engine: str) -> None:
    with suppress(BadModel):
        find_local_checkpoint(model)
    with suppress(BadInput):
        read_engine_address(engine)
    core_name(resolve_model(model), resolve_engine(engine))


@pytest.fixture(scope="module")
def folder(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(tiny_checkpoint, tmp_path_factory.mktemp("hostile") / "model")


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 3),
    st.sampled_from([2**31, 2**40, 2**63, 10**30, -(2**70), 0.5, 1e300, "x", "", "\udcff", [], {}, [[]], {"a": None}]),
    st.sampled_from(["gpt2", "mamba", "lfm2", "gemma3", "t5", "starcoder2", "mistral", "yarn", "linear", "dynamic"]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in parsed JSON, of long lists and objects of the first few."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(inner)[:40]:
        yield from places(each, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Parsed JSON with another value at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def check(folder: Path) -> None:
    with suppress(BadInput):
        assert examine(EngineOptions(str(folder)))


def change_a_file(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    file = folder / name
    kept = file.read_bytes()
    try:
        file.write_bytes(change(kept))
        check(folder)
    finally:
        file.write_bytes(kept)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_any_value_in_a_models_json(folder: Path, name: str, data: st.DataObject) -> None:
    whole = json.loads((folder / name).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(whole))))
        whole = changed(whole, path, data.draw(ODD))
        if not isinstance(whole, dict | list):
            break
    change_a_file(folder, name, lambda _: json.dumps(whole).encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_header_of_safetensors(folder: Path, data: st.DataObject) -> None:
    def change(content: bytes) -> bytes:
        (length,) = struct.unpack("<Q", content[:8])
        header, rest = content[8 : 8 + length], content[8 + length :]
        if data.draw(st.booleans()):
            whole = json.loads(header)
            path = data.draw(st.sampled_from(list(places(whole))))
            header = json.dumps(changed(whole, path, data.draw(ODD))).encode()
            return struct.pack("<Q", len(header)) + header + rest
        damaged = bytearray(content)
        at = data.draw(st.integers(0, min(len(damaged), length + 8) - 4))
        damaged[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
        return bytes(damaged)

    change_a_file(folder, "model.safetensors", change)


FAULTS: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "nothing": ("config.json", lambda config: config),
    "a state": ("config.json", lambda config: {**config, "model_type": "rwkv"}),
    "quantized": ("config.json", lambda config: {**config, "quantization_config": {"quant_method": "fp8"}}),
    "a shape": ("config.json", lambda config: {**config, "intermediate_size": 64}),
    "RoPE": ("config.json", lambda config: {**config, "rope_parameters": {"rope_type": "llama3"}}),
    "no markers": ("tokenizer.json", lambda definition: {**definition, "added_tokens": None}),
    "a kind": ("tokenizer.json", lambda definition: {**definition, "decoder": None}),
    "ids": ("tokenizer.json", lambda definition: {**definition, "added_tokens": [{"id": 2**40, "content": "x"}]}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_loading_the_doctor_and_the_list_agree(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "model")
    name, change = FAULTS[fault]
    (folder / name).write_text(json.dumps(change(json.loads((folder / name).read_text()))))
    monkeypatch.setattr(choices, "search", lambda *_: (describe(FoundModel(str(folder), "Hugging Face", folder)),))
    asked = Settings(str(folder), device="cpu", threads=1)
    problems = doctor_of_model(asked, ()).problems
    listed = next(choice.problem for choice in choices.choices(asked, ()) if choice.here)
    refused = ""
    try:
        load_engine(EngineOptions(str(folder), device="cpu", threads=1)).close()
    except BadModel as error:
        refused = str(error)
    assert bool(refused) == bool(problems) == bool(listed) == (fault != "nothing")
    assert list(problems) == ([refused] if refused else [])
