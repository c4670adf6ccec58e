"""Section 4: torch's attention kernels as the decoder calls them: which one runs, whether each is right, its times.

The first call of a kernel at a new length may load code or, with cuDNN, build a plan; the decoder's lengths hardly ever
repeat.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from proof.card import Card
from proof.correctness import distance
from proof.runner import Check, Finding, Row, Section, grouped
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from inference.backends.llama.decoder import AttentionSpan
from kv_store.main_memory import KVShape
from kv_store.workspace import KVWorkspace

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
NAMES = {"cudnn": "cudnn", "flash": "flash", "fmha": "efficient", "mem_eff": "efficient", "softmax": "math"}
"""What the names of each backend's kernels contain; those of cuDNN contain "flash" too."""
MOST_ERROR = 1e-2


@dataclass(frozen=True, slots=True)
class Call:
    """An attention of `tokens` new tokens that see `visible` ones; `first` sees none but its own."""

    name: str
    kv_heads: int
    group: int
    head_dim: int
    tokens: int
    visible: int
    kind: Literal["token", "graph", "first", "later"]


CALLS = (
    Call("135M token", 3, 3, 64, 1, 1000, "token"),
    Call("1.5B token", 2, 6, 128, 1, 2048, "token"),
    Call("7B token", 4, 7, 128, 1, 4096, "token"),
    Call("1.5B token, graph", 2, 6, 128, 1, 2048, "graph"),
    Call("1.5B drafts, graph", 2, 6, 128, 4, 2048, "graph"),
    Call("1.5B first chunk", 2, 6, 128, 256, 256, "first"),
    Call("1.5B later chunk", 2, 6, 128, 256, 2304, "later"),
    Call("7B long chunk", 4, 7, 128, 2048, 2048, "first"),
)
TINY_CALLS = (Call("token", 2, 2, 16, 1, 33, "token"), Call("drafts, graph", 2, 2, 16, 3, 40, "graph"))


def section(card: Card) -> Section:
    """Every kernel at every shape, and torch's own choice."""
    calls = CALLS if card.is_real else TINY_CALLS
    return Section(4, "attention", 8, lambda: _measure(card, calls), _conclude)


def _measure(card: Card, calls: Sequence[Call]) -> Iterator[Row]:
    for call in calls:
        inputs = _Inputs(call, card.device)
        with sdpa_kernel(SDPBackend.MATH):
            exact = inputs.attend(torch.float64).cpu()
        row: Row = {"call": call.name, "tokens": call.tokens, "visible": call.visible}
        names = " ".join(name.lower() for name, _, _ in card.kernels(inputs.attend))
        ran = next((backend for part, backend in NAMES.items() if part in names), "?")
        yield {**row, "ran": ran, "cudnn_allowed": torch.backends.cuda.cudnn_sdp_enabled()}
        for name, backend in BACKENDS.items():
            yield {**row, "backend": name, **_measured(card, inputs, backend, exact)}


def _measured(card: Card, inputs: _Inputs, backend: SDPBackend, exact: Tensor) -> Row:
    call = inputs.call
    longer = replace(call, visible=call.visible + 1, tokens=call.tokens + (call.kind == "first"))
    another = _Inputs(longer, card.device)  # what was built for one length is of no use for the next
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        with warnings.catch_warnings(action="ignore"), sdpa_kernel(backend):  # they say why a kernel is refused
            error = distance(inputs.attend().cpu().double(), exact)
            first, second = card.times_s(another.attend, 2)
            steady = card.median_s(another.attend)
    except RuntimeError as refusal:
        return {"refused": str(refusal).partition("\n")[0]}
    finally:
        torch.backends.cuda.enable_cudnn_sdp(allowed)
    return {"error": error, "first_ms": first * 1e3, "second_ms": second * 1e3, "steady_us": steady * 1e6}


class _Inputs:
    """Random queries, keys and values of a call, and a workspace with what is resident."""

    def __init__(self, call: Call, device: torch.device) -> None:
        self.call = call
        random = partial(torch.randn, dtype=torch.bfloat16, device=device)
        self._resident = random(KVShape(1, call.kv_heads, call.head_dim, "bfloat16").of_tokens(call.visible + 64))
        self._q = random(call.kv_heads, call.group, call.tokens, call.head_dim)
        self._k, self._v = (random(call.kv_heads, call.tokens, call.head_dim) for _ in range(2))
        self._spans: dict[torch.dtype, AttentionSpan] = {}

    def attend(self, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """The attention [kv_heads, group, tokens, head_dim], computed in this dtype by the decoder's own call."""
        if dtype not in self._spans:
            self._spans[dtype] = self._span(dtype)
        q, k, v = (each.to(dtype) for each in (self._q, self._k, self._v))
        return self._spans[dtype].attend(0, q, k, v, self.call.head_dim**-0.5)

    def _span(self, dtype: torch.dtype) -> AttentionSpan:
        call, device = self.call, self._q.device
        workspace = KVWorkspace(
            KVShape(1, call.kv_heads, call.head_dim, str(dtype).removeprefix("torch.")), call.visible + 64, device
        )
        workspace.buffer.copy_(self._resident)
        start = call.visible - call.tokens
        mask: Tensor | None = None
        if call.kind == "later":
            mask = causal_lower_right(call.tokens, call.visible)
        elif call.kind == "graph":
            positions = torch.arange(call.visible, device=device)
            hidden = positions > positions[start:, None]
            scores = torch.zeros(call.tokens, call.visible, dtype=dtype, device=device)
            mask = scores.masked_fill_(hidden, float("-inf")).repeat(call.group if call.tokens > 1 else 1, 1)
        rows, places = slice(0, call.tokens), slice(start, call.visible)
        return AttentionSpan(rows, places, call.visible, workspace, mask, call.kind == "first")


def _conclude(rows: Sequence[Row]) -> Iterator[Finding]:
    for call, own in grouped(rows, "call"):
        ran = next((row["ran"] for row in own if "ran" in row), "?")
        for row in own:
            if "ran" in row:
                kept = ran != "cudnn" and not row["cudnn_allowed"]
                yield Check(f"{call}: torch does not pick cuDNN", kept, f"{ran}, allowed: {row['cudnn_allowed']}")
            elif "error" in row and row["backend"] != "cudnn":
                what = f"{call}: {row['backend']} is right"
                yield Check(what, row["error"] < MOST_ERROR, f"error {row['error']:.1e}")
        times = ", ".join(
            f"{row['backend']} {row['first_ms']:.1f}ms/{row['steady_us']:.0f}us" for row in own if "steady_us" in row
        )
        yield f"{call:<19}{ran:<10}first/steady: {times}"
