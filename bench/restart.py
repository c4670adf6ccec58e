"""Times the first keystroke after a restart in the engine: warm from disk, and cold.

    python bench/restart.py [--model tiny] [--rounds 5] [--json FILE]

Each round starts one engine with the pages that an earlier one saved and one without, and sends both the same one-token
request in this repository's longest module. Prints medians and spreads of the time to its answer, and their ratio.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from figures import JsonFile, write
from rich.console import Console

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from protocol.messages import Completion, CompletionRequest, Prompt

PREFIX_SHARE = 0.6


def request() -> CompletionRequest:
    """A keystroke in the longest module of the language server."""
    text = max((path.read_text(encoding="utf-8") for path in Path("lsp_server").rglob("*.py")), key=len)
    cut = text.index("\n", int(PREFIX_SHARE * len(text))) + 1
    return CompletionRequest("bench", Prompt(text[:cut], text[cut:], "    x"), max_tokens=1)


def first_keystroke(model: str, folder: Path | None) -> tuple[Completion, float]:
    """A new engine's first completion and its time in ms; its KV is saved in `folder`, if given."""
    engine = load_engine(EngineOptions(model, context_tokens=8192, cache_folder=folder))
    try:
        started = time.perf_counter()
        completion = engine.complete(request())
        return completion, (time.perf_counter() - started) * 1000
    finally:
        engine.close()


def main(
    model: Annotated[str, typer.Option(help="Model, as for `midfill lsp`.")] = "tiny",
    rounds: Annotated[int, typer.Option(help="Number of pairs of starts.")] = 5,
    json_file: JsonFile = None,
) -> None:
    """Compare first keystrokes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved, _ = first_keystroke(model, folder)
        pairs = [(first_keystroke(model, folder), first_keystroke(model, None)) for _ in range(rounds)]
    warm, cold = ([milliseconds for _, milliseconds in side] for side in zip(*pairs, strict=True))
    (last_warm, _), (last_cold, _) = pairs[-1]
    assert last_warm.text == last_cold.text == saved.text
    figures = {
        "prompt_tokens": last_cold.usage.prompt_tokens,
        "recomputed_tokens": {"warm": last_warm.usage.recomputed_tokens, "cold": last_cold.usage.recomputed_tokens},
        "milliseconds": {"warm": sorted(warm), "cold": sorted(cold)},
        "ratio_of_medians": median(cold) / median(warm),
    }
    console = Console()
    for side, times in (("from disk", warm), ("cold", cold)):
        console.print(f"{side:9}  median {median(times):.0f} ms, {min(times):.0f} to {max(times):.0f}")
    console.print(
        f"{figures['ratio_of_medians']:.1f} times faster; {last_warm.usage.recomputed_tokens} of "
        f"{last_cold.usage.prompt_tokens} prompt tokens recomputed"
    )
    write(json_file, figures)


if __name__ == "__main__":
    typer.run(main)
