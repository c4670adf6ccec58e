"""Measures the store's memory with more open documents than its budgets hold, and checks that it stays within them.

    python bench/memory.py [--documents 50] [--room-for 8] [--edits 600] [--json FILE]

A simulated user types in documents at random. Prompts, tokens, pages of KV and files on disk are real, in the shape of
the tiny model; no model runs, so the KV is all zeros. After every edit the bench checks the store's accounts. It
prints for main memory and for disk the peak, its share of the budget, and the ratio of the bytes really there
(tensors, files) to those of the resident tokens' KV.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from figures import JsonFile, write
from rich.console import Console
from rich.table import Table

from inference.backends.model import DryModel
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import find_checkpoint
from inference.engine.engine import Engine, Policy
from inference.engine.interface import EngineInfo
from kv_store.disk.page_folder import PageFolder
from kv_store.disk.tensor_codec import TensorCodec
from kv_store.paged.store import PagedStore
from kv_store.tiers.tensor_storage import TensorStorage
from kv_store.tiers.tier import Tier
from kv_store.workspace import KVShape, KVWorkspace
from lsp_server.editing.documents import Document, Edit, Position
from lsp_server.prompts.planner import PromptPlanner
from lsp_server.prompts.windows import WindowBudget
from protocol.messages import CompletionRequest
from protocol.settings import TINY_MODEL

KEYS_PER_EDIT = 3
CONTEXT_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class TierMemory:
    """The memory of one tier, in bytes."""

    name: str
    budget: int
    most: int
    tokens: int  # resident at the end
    ratio: float  # at the end, of the bytes really there to the KV of those tokens


@dataclass(slots=True)
class Desk:
    """Open documents, and an engine whose store has room for a few of their prompts."""

    engine: Engine
    memory: Tier
    disk: Tier
    shape: KVShape
    folder: Path
    planners: list[PromptPlanner]

    def edit(self, choose: random.Random) -> None:
        """A few letters somewhere in one of the documents."""
        planner = choose.choice(self.planners)
        line = choose.randrange(len(planner.document.lines))
        for column in range(KEYS_PER_EDIT):
            cursor = Position(line, column)
            planner.edited(planner.document.apply(Edit(cursor, cursor, "x")))
            prompt = planner.plan(Position(line, column + 1)).prompt
            self.engine.complete(CompletionRequest(planner.document.uri, prompt, max_tokens=16))

    def bytes_there(self, tier: Tier) -> int:
        """The bytes of the tier, counted in its tensors or files."""
        if tier is self.disk:
            return sum(path.stat().st_size for path in self.folder.rglob("*.safetensors"))
        tensors = [page.copies[0] for page in (*tier.held, *tier.evictable)]
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors if isinstance(tensor, torch.Tensor))


def open_desk(documents: int, room_for: int, windows: WindowBudget, folder: Path) -> Desk:
    """A desk with room for `room_for` prompts of full windows in main memory, and for twice as many on disk."""
    checkpoint = find_checkpoint(TINY_MODEL)
    architecture, tokenizer = checkpoint.architecture, checkpoint.tokenizer()
    assert isinstance(architecture, Architecture), "the tiny model must be a Llama"
    shape = KVShape(architecture.layers, architecture.kv_heads, architecture.head_dim, torch.float32)
    budget = room_for * (windows.prefix_tokens + windows.suffix_tokens) * shape.bytes_per_token
    memory = Tier("memory", budget, TensorStorage("cpu"))
    disk = Tier("disk", 2 * budget, PageFolder(folder, "bench", TensorCodec(shape)))
    store = PagedStore([memory, disk], shape.bytes_per_token)
    model = DryModel(lambda: KVWorkspace(shape, CONTEXT_TOKENS), CONTEXT_TOKENS, min(tokenizer.markers.end))
    engine = Engine(EngineInfo(TINY_MODEL, "cpu", CONTEXT_TOKENS, 0.0), model, tokenizer, store, Policy())
    planners = [PromptPlanner(document, windows) for document in _documents(documents)]
    return Desk(engine, memory, disk, shape, folder, planners)


def _documents(count: int) -> list[Document]:
    """Modules of this repository, each with a distinct first line, so that no two begin alike."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path("lsp_server").rglob("*.py"))]
    return [
        Document.from_text(f"file:///{number}.py", "python", 1, f"# {number}\n{texts[number % len(texts)]}")
        for number in range(count)
    ]


def measure(desk: Desk, edits: int) -> list[TierMemory]:
    """Type, and measure main memory and disk."""
    choose = random.Random(0)
    tiers = (desk.memory, desk.disk)
    most = [0, 0]
    for _ in range(edits):
        desk.edit(choose)
        desk.engine.check_integrity()
        most = [max(before, desk.bytes_there(tier)) for before, tier in zip(most, tiers, strict=True)]
    of_tokens = [tier.tokens * desk.shape.bytes_per_token for tier in tiers]
    return [
        TierMemory(tier.name, tier.budget_bytes, held, tier.tokens, desk.bytes_there(tier) / expected)
        for tier, held, expected in zip(tiers, most, of_tokens, strict=True)
    ]


def main(
    documents: Annotated[int, typer.Option(help="Open documents.")] = 50,
    room_for: Annotated[int, typer.Option(help="Number of full prompts that fit into main memory's budget.")] = 8,
    edits: Annotated[int, typer.Option(help=f"Number of edits, each of {KEYS_PER_EDIT} keystrokes.")] = 600,
    json_file: JsonFile = None,
) -> None:
    """Measure the store's memory."""
    with tempfile.TemporaryDirectory() as folder:
        desk = open_desk(documents, room_for, WindowBudget(), Path(folder))
        tiers = measure(desk, edits)
        evicted = desk.engine.stats().evicted_tokens
        desk.engine.close()
    table = Table("tier", "budget, MB", "most held, MB", "of the budget", "bytes per byte of resident KV")
    for tier in tiers:
        share = f"{tier.most / tier.budget:.1%}"
        table.add_row(tier.name, f"{tier.budget / 1e6:.1f}", f"{tier.most / 1e6:.1f}", share, f"{tier.ratio:.3f}")
    console = Console()
    console.print(table)
    console.print(f"{documents} documents, {edits * KEYS_PER_EDIT} keystrokes, {evicted:,} tokens evicted")
    write(json_file, [asdict(tier) for tier in tiers])


if __name__ == "__main__":
    typer.run(main)
