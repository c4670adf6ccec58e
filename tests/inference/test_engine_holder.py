"""What is asked of the holder while no model is in memory."""

from __future__ import annotations

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
