"""The decoder of the Llama family (Llama, Qwen2, Qwen3, Mistral, Granite), with its rotary positions, on the static
buffers of workspaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from inference.backends import cuda
from inference.backends.layer_weights import LayerWeights
from inference.backends.llama.weights import DecoderWeights
from inference.backends.model import Choice, Chunk
from inference.backends.rotation import rotations
from inference.backends.sampling import choose
from inference.checkpoints.architecture import Architecture
from kv_store.main_memory import KVShape
from kv_store.workspace import KVWorkspace


def rotation_tables(
    architecture: Architecture, config: Mapping[str, Any], positions: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, each [positions, turned], with both halves of a row equal."""
    halves = map(torch.from_numpy, rotations(architecture, config, positions))
    cosines, sines = (torch.cat((half, half), dim=-1).to(device, dtype) for half in halves)
    return cosines, sines


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotates x [heads, tokens, head_dim] by tables [tokens, head_dim], in the layout of Hugging Face checkpoints."""
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


@dataclass(frozen=True, slots=True)
class AttentionSpan:
    """The location of one sequence's tokens, and how they attend.

    Attributes:
        rows: of the forward.
        positions: in the workspace, as a slice or as int64 [tokens].
        visible: number of the workspace's tokens that attention receives.
        mask: [tokens, visible], or of each head of a group [group * tokens, visible]: added to attention scores; None
            if not needed. Flash attention takes none, except for `causal_lower_right`, which has no numbers.
        is_causal: whether, without a mask, each token sees those up to itself; otherwise it sees all visible ones.
    """

    rows: slice
    positions: slice | Tensor
    visible: int
    workspace: KVWorkspace
    mask: Tensor | None
    is_causal: bool = False

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Write k and v [kv_heads, tokens, head_dim] to the workspace.

        Returns the attention of q [kv_heads, group, tokens, head_dim] to them and what is before, shaped as q; `scale`
        is the factor of the scores. The heads of a group share their keys without a copy. Those of a single token, or
        with a mask of each head, are stacked as queries. Those of several tokens read the keys through a stride of
        zero, which torch's memory-efficient kernel gets wrong with a mask of some widths on a GPU.
        """
        keys, values = self.workspace.buffer[layer].unsqueeze(2)  # each [kv_heads, 1, max_tokens, head_dim]
        keys[:, 0, self.positions] = k
        values[:, 0, self.positions] = v
        keys, values = keys[:, :, : self.visible], values[:, :, : self.visible]
        group, tokens = q.shape[1:3]
        if tokens == 1 or (self.mask is not None and self.mask.shape[0] > tokens):
            stacked = q.flatten(1, 2).unsqueeze(1)
            alone = F.scaled_dot_product_attention(stacked, keys, values, attn_mask=self.mask, scale=scale)
            return alone.reshape(q.shape)
        shared = (-1, group, -1, -1)
        keys, values = keys.expand(shared), values.expand(shared)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask, is_causal=self.is_causal, scale=scale)


class Decoder:
    """Implements `Model`. All sequences' tokens go through the matrices together; each sequence attends to its own."""

    def __init__(
        self, architecture: Architecture, config: Mapping[str, Any], weights: DecoderWeights, context_tokens: int
    ) -> None:
        self.architecture = architecture
        self.context_tokens = context_tokens
        self.device = weights.embedding.device
        dtype = weights.embedding.dtype
        self.kv_shape = KVShape(
            architecture.layers, architecture.kv_heads, architecture.head_dim, str(dtype).removeprefix("torch.")
        )
        self.weights = weights
        self.tables = rotation_tables(architecture, config, context_tokens, dtype, self.device)

    @property
    def arithmetic(self) -> str:
        """A name for all that KV depends on besides checkpoint and dtypes."""
        device = self.device.type
        return f"decoder on torch {torch.__version__}, {cuda.name(self.device) if device == 'cuda' else device}"

    @property
    def weights_bytes(self) -> int:
        return self.weights.nbytes

    def new_workspace(self) -> KVWorkspace:
        return KVWorkspace(self.kv_shape, self.context_tokens, self.device)

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        if not any(chunk.wanted for chunk in chunks):
            self.hidden(chunks)
            if self.device.type == "cuda":  # otherwise a cancellation would wait for all queued chunks
                cuda.wait(self.device)
            return [()] * len(chunks)
        hidden = torch.split(self.hidden(chunks), [len(chunk.token_ids) for chunk in chunks])
        last = [states[len(states) - chunk.wanted :] for chunk, states in zip(chunks, hidden, strict=True)]
        logits = torch.split(self.logits(torch.cat(last)), [chunk.wanted for chunk in chunks])
        return [choose(rows, chunk) for chunk, rows in zip(chunks, logits, strict=True)]

    @torch.inference_mode()
    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        """Hidden states [tokens of all chunks, hidden] before the final norm; writes the KV of these tokens."""
        token_ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
        return self.hidden_of(torch.tensor(token_ids, device=self.device), self._spans(chunks))

    def hidden_of(self, token_ids: Tensor, spans: Sequence[AttentionSpan]) -> Tensor:
        """As `hidden`, for token ids, int64 [tokens], on the device."""
        residual_scale = self.architecture.residual_scale
        x = F.embedding(token_ids, self.weights.embedding)
        if self.architecture.embedding_scale != 1:
            x = x * self.architecture.embedding_scale
        tables = tuple(torch.cat([table[span.positions] for span in spans]) for table in self.tables)
        for index, layer in enumerate(self.weights.layers):
            attended = self._attention(index, layer, self._normed(x, layer.attention_norm), spans, tables)
            x = torch.add(x, attended, alpha=residual_scale)
            x = torch.add(x, self._mlp(layer, self._normed(x, layer.mlp_norm)), alpha=residual_scale)
        return x

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [tokens, vocabulary] in float32 of hidden states [tokens, hidden]."""
        logits = F.linear(self._normed(hidden, self.weights.final_norm), self.weights.head).float()
        return logits if self.architecture.logits_scale == 1 else logits * self.architecture.logits_scale

    def _spans(self, chunks: Sequence[Chunk]) -> list[AttentionSpan]:
        spans, row = [], 0
        for chunk in chunks:
            start, stop, workspace = chunk.start, chunk.stop, chunk.workspace
            assert 0 <= start < stop <= self.context_tokens, (
                f"tokens [{start}, {stop}) exceed the context of {self.context_tokens}"
            )
            assert isinstance(workspace, KVWorkspace), f"expected a KVWorkspace, not a {type(workspace).__name__}"
            is_causal = start == 0 and stop > 1
            mask = None if is_causal or stop == start + 1 else self._causal_mask(start, stop)
            rows = slice(row, row + stop - start)
            spans.append(AttentionSpan(rows, slice(start, stop), stop, workspace, mask, is_causal))
            row += stop - start
        return spans

    def _attention(
        self, index: int, layer: LayerWeights[Tensor], x: Tensor, spans: Sequence[AttentionSpan], tables: Sequence[Tensor]
    ) -> Tensor:
        """x: [tokens, hidden]; tables: cosines and sines [tokens, head_dim]; the result is [tokens, hidden]."""
        shape = self.architecture
        qkv = F.linear(x, layer.qkv, layer.qkv_bias).view(x.shape[0], -1, shape.head_dim).transpose(0, 1)
        q, k, v = torch.split(qkv, [shape.heads, shape.kv_heads, shape.kv_heads])  # each [heads, tokens, head_dim]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._normed(q, layer.q_norm), self._normed(k, layer.k_norm)
        q, k = rotate(q, *tables), rotate(k, *tables)
        q = q.view(shape.kv_heads, shape.heads // shape.kv_heads, -1, shape.head_dim)
        scale = shape.attention_scale
        attended = [span.attend(index, q[:, :, span.rows], k[:, span.rows], v[:, span.rows], scale) for span in spans]
        together = attended[0] if len(attended) == 1 else torch.cat(attended, dim=2)
        heads_last = together.flatten(0, 1).transpose(0, 1).reshape(x.shape[0], -1)
        return F.linear(heads_last, layer.attention_out, layer.attention_out_bias)

    @staticmethod
    def _mlp(layer: LayerWeights[Tensor], x: Tensor) -> Tensor:
        gate, up = F.linear(x, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, layer.down, layer.down_bias)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.architecture.norm_epsilon)

    def _causal_mask(self, start: int, stop: int) -> Tensor:
        """[tokens, visible]: hides what is after each token; on a GPU without numbers."""
        if self.device.type == "cuda":
            from torch.nn.attention.bias import causal_lower_right  # imports torch's compiler, which takes a second

            return causal_lower_right(stop - start, stop)
        positions = torch.arange(stop, device=self.device)
        scores = torch.zeros(stop - start, stop, dtype=self.weights.embedding.dtype, device=self.device)
        return scores.masked_fill_(positions > positions[start:stop, None], float("-inf"))
