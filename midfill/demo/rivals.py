"""What other prompt layouts would have recomputed for the keystrokes of a demo: counted, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inference.loading import load_dry_engine
from lsp_server.documents import Edit
from midfill.demo.player import Keystroke
from midfill.replay.player import engine_options
from midfill.replay.targets import EngineTarget
from midfill.replay.trace import Step
from protocol.settings import Settings, Strategy


async def mean_recomputed(strategy: Strategy, settings: Settings, text: str, keystrokes: Sequence[Keystroke]) -> float:
    """Tokens recomputed per request that the core computed, had prompts been laid out as `strategy` says.

    Everything is real but the model: windows, tokenizer, and the longest common prefix with what is resident. The
    first request is left out: there is nothing yet that it could reuse.
    """
    engine = load_dry_engine(engine_options(settings))
    target = EngineTarget(engine, replace(settings, strategy=strategy), "python", text)
    costs = []
    for step in _computed_steps(keystrokes):
        answer = await target.play(step, tell_move=False)
        costs.append(answer.usage.recomputed_tokens if answer.usage else 0)
    engine.close()
    return sum(costs[1:]) / max(1, len(costs) - 1)


def _computed_steps(keystrokes: Sequence[Keystroke]) -> Iterator[Step]:
    """A step for every computed request, with all edits since the one before it."""
    edits: list[Edit] = []
    for keystroke in keystrokes:
        if keystroke.press.edit is not None:
            edits.append(keystroke.press.edit)
        if keystroke.cost is not None and keystroke.cost.source == "core" and not keystroke.cost.ahead:
            yield Step(None, tuple(edits), keystroke.cursor, text="", kind="")
            edits.clear()
