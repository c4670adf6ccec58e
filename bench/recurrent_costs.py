"""Counts what a recorded session costs a model with recurrent layers, beside one with attention alone.

    python bench/recurrent_costs.py [SESSION] [--limit 400] [--no-moves]

It plays what `midfill replay --dry --strategies efim` plays. The engine computes nothing, and keeps as few snapshots
as for the largest models.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from checkpoints import write_tokenizer
from figures import JsonFile, write
from playing import TRACE
from rich.console import Console
from rich.table import Table
from transformers import Lfm2Config, PreTrainedConfig, Qwen3MoeConfig

from midfill.replay.command import ReplayOptions
from midfill.replay.player import replay
from midfill.replay.results import strategy_summary
from midfill.replay.trace import read_trace
from protocol.settings import Settings

SIZES: dict[str, Any] = {
    "vocab_size": 16_384,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 8192,
}
MODELS: dict[str, PreTrainedConfig] = {
    "recurrent, beside attention": Lfm2Config(**SIZES, layer_types=["conv", "full_attention"]),
    "attention alone": Qwen3MoeConfig(**SIZES),
}


def play(config: PreTrainedConfig, session: Path, options: ReplayOptions) -> dict[str, Any]:
    """The summary of a replay with a model that has this config and the tiny model's tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder, "tokenizer.json"), config.vocab_size)
        config.save_pretrained(folder)
        played = replay(read_trace(session), Settings(model=folder), options, lambda _name, _done: None)
        return strategy_summary(asyncio.run(played).strategies[0])


def main(
    session: Annotated[Path, typer.Argument(help="A recorded editing session.")] = TRACE,
    start: Annotated[int, typer.Option(help="First transaction.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Number of transactions.")] = None,
    moves: Annotated[bool, typer.Option(help="Announce cursor moves, as editors do.")] = True,
    json_file: JsonFile = None,
) -> None:
    """Play the session with both models."""
    options = ReplayOptions(dry=True, strategies="efim", start=start, limit=limit, moves=moves)
    found = {name: play(config, session, options) for name, config in MODELS.items()}
    table = Table("layers", "hit", "recomputed tokens: mean", "p50", "p95", "p99", "ahead: mean")
    for name, figures in found.items():
        counts = [
            f"{value:.1f}" if rank == "mean" else str(value) for rank, value in figures["recomputed_tokens"].items()
        ]
        table.add_row(name, f"{figures['hit_share']:.1%}", *counts, f"{figures['prefetched_tokens_mean']:.0f}")
    Console().print(table)
    write(json_file, found)


if __name__ == "__main__":
    typer.run(main)
