"""What is asked of the holder while no model is in memory, and what becomes of the memory."""

from __future__ import annotations

import gc
import logging
import weakref
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from inference.checkpoints.hub import ReportProgress
from inference.core.engine_holder import EngineHolder
from inference.engine.interface import AnyEngine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.loading.speed_record import SpeedRecord
from kv_store.disk_folders import remove_other_models
from kv_store.persistence import purge_saved
from kv_store.purges import PurgeJournal
from kv_store.store import PagedStore
from protocol.errors import BadModel
from protocol.messages import CompletionRequest, CoreStatus, Prompt, Usage
from protocol.settings import BUNDLED_MODEL

REQUEST = CompletionRequest("a.py", Prompt("def size_of(path):\n    return 1\n\n\n", "\n", "x = "), max_tokens=1)


@pytest.mark.usefixtures("quick_core")
@pytest.mark.parametrize("forgotten", [(), ("a.py",), ("b.py",)])
def test_what_is_forgotten_while_unloaded_is_gone_from_disk(
    tiny_checkpoint: Path, tmp_path: Path, forgotten: tuple[str, ...]
) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1, cache_folder=tmp_path)
    holder = EngineHolder("tiny", lambda progress: load_engine(options, progress), lambda status: None)
    usage = holder.engine().complete(REQUEST).usage
    holder.unload()
    for session in forgotten:
        holder.forget(session)
    again = holder.engine().complete(REQUEST).usage
    assert again.recomputed_tokens == (usage.prompt_tokens if "a.py" in forgotten else 1)
    holder.unload()


def test_what_is_saved_is_removed_while_nothing_is_loaded(tiny_checkpoint: Path, tmp_path: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1, cache_folder=tmp_path)
    load = partial(load_engine, options)
    holder = EngineHolder("tiny", load, lambda _: None, clear_saved=partial(remove_other_models, tmp_path))
    holder.engine().complete(REQUEST)
    holder.free(disk=True)
    assert not list(tmp_path.rglob("*.safetensors"))
    holder.engine().complete(replace(REQUEST, session="b.py"))
    holder.unload()
    assert list(tmp_path.rglob("*.safetensors"))
    holder.free(disk=False)
    assert list(tmp_path.rglob("*.safetensors"))
    holder.free(disk=True)
    assert not list(tmp_path.iterdir())


def test_what_is_forgotten_while_unloaded_is_gone_though_nothing_is_loaded_again(tiny_checkpoint: Path, tmp_path: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1, cache_folder=tmp_path)
    load = partial(load_engine, options)
    holder = EngineHolder("tiny", load, lambda status: None, partial(purge_saved, tmp_path))
    usage = holder.engine().complete(REQUEST).usage
    other = replace(REQUEST, session="b.py", prompt=Prompt("import os\n\n\n", "\n", "x = "))
    holder.engine().complete(other)
    holder.unload()
    assert any(b"a.py" in path.read_bytes() for path in tmp_path.rglob("index*"))
    holder.forget("some client/a.py")
    assert not any(b"a.py" in path.read_bytes() for path in tmp_path.rglob("index*"))
    engine = load_engine(options)
    assert engine.stats().refused == ()
    assert engine.complete(other).usage.recomputed_tokens == 1
    assert engine.complete(REQUEST).usage.recomputed_tokens >= usage.prompt_tokens - 1  # both begin with the marker
    engine.close()


def test_what_a_process_was_to_forget_when_it_was_killed_is_gone_from_disk(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1, cache_folder=tmp_path)
    journal = PurgeJournal(tmp_path)
    holder = EngineHolder("tiny", partial(load_engine, options), lambda _: None, journal.add)
    usage = holder.engine().complete(REQUEST).usage
    holder.engine().save()

    def be_killed(store: PagedStore, _: str) -> None:
        store._folder.close()  # type: ignore[union-attr] # as the system does it
        raise KeyboardInterrupt

    monkeypatch.setattr(PagedStore, "purge", be_killed)
    with pytest.raises(KeyboardInterrupt):
        holder.forget("a.py")
    engine = load_engine(options)
    assert engine.complete(REQUEST).usage.recomputed_tokens == usage.prompt_tokens
    engine.close()


def test_what_is_loaded_is_not_searched_for_garbage_and_goes_when_it_is_unloaded(tiny_checkpoint: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)
    holder = EngineHolder("tiny", lambda progress: load_engine(options, progress), lambda status: None)
    engine = weakref.ref(holder.engine())
    assert all(tracked is not engine() for tracked in gc.get_objects())
    assert gc.get_freeze_count() > 0
    holder.unload()
    assert engine() is None
    assert gc.get_freeze_count() == 0


class _Weights:
    """Stands for what is loaded before a failure."""


@pytest.mark.parametrize("error", [MemoryError, BadModel])
def test_a_failed_attempt_keeps_nothing_that_it_had_loaded(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # a captured record keeps the traceback
    loaded: list[weakref.ref[_Weights]] = []

    def load(_: ReportProgress) -> AnyEngine:
        weights = _Weights()
        loaded.append(weakref.ref(weights))
        raise error("no workspace")

    holder = EngineHolder("tiny", load, lambda _: None)
    for _ in range(3):
        with pytest.raises(BadModel, match="no workspace"):
            holder.engine()
    assert [weights() for weights in loaded] == [None], "the second call finds the failure of the first"
    assert holder.status.state == "failed"


def test_what_other_models_have_saved_is_forgotten_while_one_is_loaded(tiny_checkpoint: Path, tmp_path: Path) -> None:
    load = partial(load_engine, EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1))
    forgotten: list[str] = []
    holder = EngineHolder("tiny", load, lambda _: None, forgotten.append)
    holder.engine()
    holder.forget("client/a.py")
    assert forgotten == ["client/a.py"]
    holder.unload()


def test_the_speed_of_answers_is_reported_and_kept_when_the_model_is_unloaded(tiny_checkpoint: Path, tmp_path: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)
    record = SpeedRecord(tmp_path, EngineOptions(BUNDLED_MODEL))
    told: list[CoreStatus] = []
    load = partial(load_engine, options)
    holder = EngineHolder("bundled", load, told.append, None, record)
    holder.engine()
    assert (told[-1].state, told[-1].detail) == ("ready", "")
    for _ in range(5):
        record.note(Usage(100, 100, 10, 10, queue_ms=0.0, prefill_ms=1e6, decode_ms=1e6))
    holder.step()
    assert told[-1].state == "ready"
    assert "the model tiny is faster" in told[-1].detail
    holder.unload()
    assert SpeedRecord(tmp_path, EngineOptions(BUNDLED_MODEL)).speed == record.speed is not None
    EngineHolder("bundled", load, told.append, None, SpeedRecord(tmp_path, EngineOptions(BUNDLED_MODEL))).engine()
    assert "the model tiny is faster" in told[-1].detail
