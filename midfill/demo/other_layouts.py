"""Counts the tokens that other prompt layouts would have recomputed for a demo's keystrokes, without a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from inference.loading.engine import load_dry_engine
from inference.loading.options import engine_options
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.demo.player import Keystroke
from midfill.headless.engine_core import EngineCore
from protocol.settings import Settings, Strategy


async def mean_recomputed(
    strategy: Strategy, settings: Settings, language: str, text: str, keystrokes: Sequence[Keystroke]
) -> float:
    """The mean of recomputed tokens per request if prompts had the layout `strategy`.

    Windows, tokenizer and the longest common prefix with resident tokens are real; only the model is missing. The
    requests are those that the core computed, and jumps are prepared ahead of the next key, as in the run.
    """
    engine = load_dry_engine(engine_options(settings))
    costs: list[PromptCost] = []
    always = replace(settings, strategy=strategy, prepare_ahead="always")
    session = EditingSession(EngineCore(engine), always, "demo", costs.append)
    opened = session.open("file:///demo", language, 1, text)
    for key in keystrokes:
        for edit in key.step.edits:
            opened.apply(edit)
        if key.kind == "jump":
            session.look_ahead(opened, key.cursor)
            while opened.latest.busy:
                await asyncio.sleep(0)
        elif key.cost is not None and key.cost.source == "core":
            await session.suggest(opened, Query(key.cursor))
    session.close(opened.document.uri)
    engine.close()
    recomputed = [cost.usage.recomputed_tokens for cost in costs if not cost.ahead]
    return sum(recomputed) / max(1, len(recomputed))
