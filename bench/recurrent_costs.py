"""Counts what a recorded session costs a model with recurrent layers, beside one with attention alone.

    python bench/recurrent_costs.py [SESSION] [--limit 400] [--no-moves]

It plays what `midfill replay --dry --strategies efim` plays. The engine computes nothing, and keeps as few snapshots
as for the largest models; once it keeps them at multiples of BLOCK tokens alone, as vLLM does.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from checkpoints import write_tokenizer
from figures import JsonFile, write
from playing import TRACE
from rich.console import Console
from rich.table import Table
from transformers import Lfm2Config, PreTrainedConfig, Qwen3MoeConfig

from inference.engine import writer
from inference.engine.slots import Slot
from inference.text.token_ids import TokenIds
from kv_store.page_snapshots import PageSnapshots
from kv_store.page_tree import Page
from kv_store.snapshots import StateSnapshot
from midfill.replay.command import ReplayOptions
from midfill.replay.player import replay
from midfill.replay.results import strategy_summary
from midfill.replay.trace import read_trace
from protocol.settings import Settings

CONTEXT_TOKENS = 8192
SIZES: dict[str, Any] = {
    "vocab_size": 16_384,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": CONTEXT_TOKENS,
}
RECURRENT = Lfm2Config(**SIZES, layer_types=["conv", "full_attention"])
ATTENTION = Qwen3MoeConfig(**SIZES)
BLOCK = 528
"""Tokens whose KV takes as much as a state, to which vLLM enlarges its blocks for Qwen3.5-4B."""


def play(config: PreTrainedConfig, session: Path, options: ReplayOptions) -> dict[str, Any]:
    """The summary of a replay with a model that has this config and the tiny model's tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder, "tokenizer.json"), config.vocab_size)
        config.save_pretrained(folder)
        played = replay(read_trace(session), Settings(model=folder), options, lambda _name, _done: None)
        return strategy_summary(asyncio.run(played).strategies[0])


@contextmanager
def blocks() -> Iterator[None]:
    """Between prompts, snapshots are kept at the ends of blocks alone."""
    prepare, put = Slot.prepare, PageSnapshots.put

    def put_at_blocks(kept: PageSnapshots, path: Sequence[Page], position: int, snapshot: StateSnapshot) -> None:
        if position % BLOCK == 0:
            put(kept, path, position, snapshot)

    def prepare_from_blocks(slot: Slot, wanted: TokenIds, session: str) -> int:
        kept = slot.workspace.snapshots
        assert kept is not None, "the model has no recurrent layers"
        before = [(place, snapshot) for place, snapshot in kept.within(CONTEXT_TOKENS) if place % BLOCK == 0]
        kept.drop_beyond(0)
        for place, snapshot in before:
            kept.put(place, snapshot)
        return prepare(slot, wanted, session)

    with (
        patch.object(Slot, "prepare", prepare_from_blocks),
        patch.object(PageSnapshots, "put", put_at_blocks),
        patch.object(writer, "SNAPSHOT_EVERY", BLOCK),
    ):
        yield


def main(
    session: Annotated[Path, typer.Argument(help="A recorded editing session.")] = TRACE,
    start: Annotated[int, typer.Option(help="First transaction.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Number of transactions.")] = None,
    moves: Annotated[bool, typer.Option(help="Announce cursor moves, as editors do.")] = True,
    json_file: JsonFile = None,
) -> None:
    """Play the session with each."""
    options = ReplayOptions(dry=True, strategies="efim", start=start, limit=limit, moves=moves)
    found = {
        "recurrent, beside attention": play(RECURRENT, session, options),
        "attention alone": play(ATTENTION, session, options),
    }
    with blocks():
        found[f"recurrent, states at multiples of {BLOCK} tokens"] = play(RECURRENT, session, options)
    table = Table("layers", "hits", "recomputed tokens: mean", "p50", "p95", "p99", "prefetched: mean")
    for name, figures in found.items():
        counts = [f"{value:.1f}" if rank == "mean" else str(value) for rank, value in figures["recomputed_tokens"].items()]
        table.add_row(name, f"{figures['hit_share']:.1%}", *counts, f"{figures['prefetched_tokens_mean']:.0f}")
    Console().print(table)
    write(json_file, found)


if __name__ == "__main__":
    typer.run(main)
