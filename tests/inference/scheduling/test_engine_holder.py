"""What is asked of the holder while no model is in memory, and what becomes of the memory."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.scheduling.engine_holder import EngineHolder
from kv_store.disk.model_folders import purge_saved
from protocol.messages import CompletionRequest, Prompt

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


def test_what_is_forgotten_while_unloaded_is_gone_though_nothing_is_loaded_again(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
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


def test_what_is_loaded_is_not_searched_for_garbage_and_goes_when_it_is_unloaded(tiny_checkpoint: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)
    holder = EngineHolder("tiny", lambda progress: load_engine(options, progress), lambda status: None)
    engine = weakref.ref(holder.engine())
    assert all(tracked is not engine() for tracked in gc.get_objects())
    assert gc.get_freeze_count() > 0
    holder.unload()
    assert engine() is None
    assert gc.get_freeze_count() == 0
