"""Section 4: torch's attention kernels at the decoder's shapes: which one it picks, whether each is right, its times.

The first call of a kernel at a new shape may load code or, with cuDNN, build a plan; the decoder's hardly ever repeat.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from proof.card import Card
from proof.correctness import distance
from proof.runner import Check, Finding, Row, Section
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
MOST_ERROR = 1e-2


@dataclass(frozen=True, slots=True)
class Call:
    """An attention of `tokens` new tokens that see `visible` ones, as the decoder calls it."""

    name: str
    kv_heads: int
    group: int
    head_dim: int
    tokens: int
    visible: int
    masked: bool = False

    @property
    def is_causal(self) -> bool:
        """The first tokens of a prompt need no mask."""
        return not self.masked and self.tokens == self.visible > 1


CALLS = (
    Call("135M token", 3, 3, 64, 1, 1000),
    Call("1.5B token", 2, 6, 128, 1, 2048),
    Call("7B token", 4, 7, 128, 1, 4096),
    Call("1.5B token, graph", 2, 6, 128, 1, 2048, masked=True),
    Call("1.5B drafts, graph", 2, 6, 128, 4, 2048, masked=True),
    Call("1.5B first chunk", 2, 6, 128, 256, 256),
    Call("1.5B later chunk", 2, 6, 128, 256, 2304, masked=True),
    Call("7B long chunk", 4, 7, 128, 2048, 2048),
)
TINY_CALLS = (Call("token", 2, 2, 16, 1, 33), Call("chunk", 2, 2, 16, 8, 40, masked=True))


def section(card: Card) -> Section:
    """Every kernel at every shape, and torch's own choice."""
    calls = CALLS if card.is_real else TINY_CALLS
    return Section(4, "attention", 12, lambda: _measure(card, calls), _conclude)


def _measure(card: Card, calls: Sequence[Call]) -> Iterator[Row]:
    for call in calls:
        q, k, v, mask = _inputs(call, card.device)
        with sdpa_kernel(SDPBackend.MATH):
            exact = _attend(q.double(), k.double(), v.double(), None if mask is None else mask.double(), call).cpu()
        row: Row = {"call": call.name, "tokens": call.tokens, "visible": call.visible}
        if card.is_real:
            row["picked"] = _picked(q, k, v, mask, call)
        yield row
        for name, backend in BACKENDS.items():
            yield {**row, **_measured(card, call, name, backend, (q, k, v, mask), exact)}


def _measured(
    card: Card,
    call: Call,
    name: str,
    backend: SDPBackend,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None],
    exact: Tensor,
) -> Row:
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        with warnings.catch_warnings(action="ignore"), sdpa_kernel(backend):  # they say why a kernel is refused
            result = _attend(*inputs, call)
            # Another length, as a decoder's next token or chunk has: whatever was built for the first one is of no use.
            q, k, v, mask = _inputs(call, card.device, 1)
            first, second = card.times_s(lambda: _attend(q, k, v, mask, call), 2)
            steady = card.median_s(lambda: _attend(q, k, v, mask, call))
    except RuntimeError as error:
        return {"backend": name, "refused": str(error).partition("\n")[0]}
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)
    times = {"first_ms": first * 1e3, "second_ms": second * 1e3, "steady_us": steady * 1e6}
    return {"backend": name, "error": distance(result.cpu().double(), exact), **times}


def _inputs(call: Call, device: torch.device, longer: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """q, k, v and the mask, with the strides that workspaces give them; `longer` by so many visible tokens."""
    tokens = call.tokens + longer if call.is_causal else call.tokens
    visible = call.visible + longer
    of_type: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
    workspace = torch.empty(2, call.kv_heads, visible + 64, call.head_dim, **of_type).normal_()
    k, v = (part[:, None, :visible] for part in workspace)
    q = torch.empty(call.kv_heads, call.group, tokens, call.head_dim, **of_type).normal_()
    if tokens == 1:
        q = q.transpose(1, 2)
    else:
        k, v = (part.expand(-1, call.group, -1, -1) for part in (k, v))
    if not call.masked:
        return q, k, v, None
    positions = torch.arange(visible, device=device)
    hidden = positions > positions[visible - tokens :, None]
    mask = torch.zeros(tokens, visible, **of_type).masked_fill_(hidden, float("-inf"))
    return q, k, v, mask


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, call: Call) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=call.is_causal)


def _picked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, call: Call) -> str:
    """The name of the kernel that torch picks as the core has set it up."""
    number = torch._fused_sdp_choice(q, k, v, attn_mask=mask, dropout_p=0.0, is_causal=call.is_causal)
    names = {int(getattr(backend, "value", backend)): name for name, backend in BACKENDS.items()}
    return names.get(int(number), str(number))


def _conclude(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        if "backend" not in row:
            if "picked" in row:
                yield Check(f"{row['call']}: torch does not pick cuDNN", row["picked"] != "cudnn", row["picked"])
        elif "refused" not in row and row["backend"] != "cudnn":
            what = f"{row['call']}: {row['backend']} is right"
            yield Check(what, row["error"] < MOST_ERROR, f"error {row['error']:.1e}")
    for call in dict.fromkeys(row["call"] for row in rows):
        own = [row for row in rows if row["call"] == call]
        times = [
            f"{row['backend']} {row['first_ms']:.1f} ms/{row['steady_us']:.0f} us" for row in own if "steady_us" in row
        ]
        yield f"{call:<19}picked {own[0].get('picked', '?'):<10}first/steady: {', '.join(times)}"
