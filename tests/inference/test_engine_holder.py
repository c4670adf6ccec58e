"""What is asked of the holder while no model is in memory, and what becomes of the memory."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from inference.engine_holder import EngineHolder
from inference.loading import EngineOptions, load_engine
from protocol.messages import CompletionRequest, Prompt

REQUEST = CompletionRequest("a.py", Prompt("def size_of(path):\n    return 1\n\n\n", "\n", "x = "), max_tokens=1)


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


def test_what_is_loaded_is_not_searched_for_garbage_and_goes_when_it_is_unloaded(tiny_checkpoint: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)
    holder = EngineHolder("tiny", lambda progress: load_engine(options, progress), lambda status: None)
    engine = weakref.ref(holder.engine())
    assert all(tracked is not engine() for tracked in gc.get_objects())
    assert gc.get_freeze_count() > 0
    holder.unload()
    assert engine() is None
    assert gc.get_freeze_count() == 0
