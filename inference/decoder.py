"""Our own decoder for the Llama family (Llama, Qwen2, Qwen3, Mistral), on the static buffers of a workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from inference.architecture import Architecture
from inference.decoder_weights import DecoderWeights, LayerWeights
from inference.healing_choice import greedy_choice
from inference.healing_vocabulary import AllowedIds
from inference.model import Choice
from inference.rope import rotate, rotation_tables
from kv_store.workspace import KVWorkspace


class Decoder:
    """Implements `Model`; one thread uses it, since its workspace is one."""

    def __init__(
        self, architecture: Architecture, config: Mapping[str, Any], weights: DecoderWeights, workspace: KVWorkspace
    ) -> None:
        self.architecture = architecture
        self.workspace = workspace
        self._weights = weights
        self._device = weights.embedding.device
        self._cosines, self._sines = rotation_tables(
            architecture, config, workspace.max_tokens, weights.embedding.dtype, self._device
        )
        self._layer_kv = [self._grouped(*workspace.layer(index)) for index in range(architecture.layers)]

    @property
    def context_tokens(self) -> int:
        return self.workspace.max_tokens

    @property
    def alignment(self) -> int:
        return 1

    def prefill(self, token_ids: Sequence[int], start: int) -> None:
        self.hidden(token_ids, start)

    def choose_next(self, token_ids: Sequence[int], start: int, allowed: AllowedIds | None = None) -> Choice:
        return greedy_choice(self.logits(self.hidden(token_ids, start)[-1:])[0], allowed)

    @torch.inference_mode()
    def hidden(self, token_ids: Sequence[int], start: int) -> Tensor:
        """Hidden states [tokens, hidden] before the final norm; writes KV at [start, start + tokens).

        Needs the KV of [0, start) in the workspace, and start + tokens <= context_tokens.
        """
        stop = start + len(token_ids)
        assert 0 <= start < stop <= self.context_tokens, f"tokens [{start}, {stop}) of {self.context_tokens}"
        x = F.embedding(torch.tensor(token_ids, device=self._device), self._weights.embedding)
        mask = self._causal_mask(start, stop) if len(token_ids) > 1 else None  # [tokens, visible]
        for layer, (keys, values) in zip(self._weights.layers, self._layer_kv, strict=True):
            x = x + self._attention(layer, self._normed(x, layer.attention_norm), keys, values, start, mask)
            x = x + self._mlp(layer, self._normed(x, layer.mlp_norm))
        return x

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [tokens, vocabulary] in float32 of hidden states [tokens, hidden]."""
        return F.linear(self._normed(hidden, self._weights.final_norm), self._weights.head).float()

    def _attention(
        self, layer: LayerWeights, x: Tensor, keys: Tensor, values: Tensor, start: int, mask: Tensor | None
    ) -> Tensor:
        """x: [tokens, hidden]; keys, values: [kv_heads, 1, max_tokens, head_dim]; the result is [tokens, hidden]."""
        shape = self.architecture
        stop = start + x.shape[0]
        qkv = F.linear(x, layer.qkv, layer.qkv_bias).view(x.shape[0], -1, shape.head_dim).transpose(0, 1)
        q, k = qkv[: shape.heads], qkv[shape.heads : -shape.kv_heads]  # each [heads, tokens, head_dim]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._normed(q, layer.q_norm), self._normed(k, layer.k_norm)
        cosines, sines = self._cosines[start:stop], self._sines[start:stop]
        keys[:, 0, start:stop] = rotate(k, cosines, sines)
        values[:, 0, start:stop] = qkv[-shape.kv_heads :]
        group = shape.heads // shape.kv_heads
        q = rotate(q, cosines, sines).view(shape.kv_heads, group, -1, shape.head_dim)
        visible = self._visible(stop)
        attended = _attend(q, keys[:, :, :visible], values[:, :, :visible], mask)  # [kv_heads, group, tokens, head_dim]
        heads_last = attended.flatten(0, 1).transpose(0, 1).reshape(x.shape[0], -1)
        return F.linear(heads_last, layer.attention_out, layer.attention_out_bias)

    @staticmethod
    def _mlp(layer: LayerWeights, x: Tensor) -> Tensor:
        gate, up = F.linear(x, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, layer.down, layer.down_bias)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.architecture.norm_epsilon)

    def _visible(self, stop: int) -> int:
        """How many of the workspace's tokens attention is given, when [0, stop) are written."""
        return stop

    def _causal_mask(self, start: int, stop: int) -> Tensor:
        """[tokens, visible]: 0 up to the token itself, minus infinity after it, to be added to attention scores."""
        positions = torch.arange(self._visible(stop), device=self._device)
        scores = torch.zeros(stop - start, len(positions), dtype=self._weights.embedding.dtype, device=self._device)
        return scores.masked_fill_(positions > positions[start:stop, None], float("-inf"))

    @staticmethod
    def _grouped(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Views [kv_heads, 1, max_tokens, head_dim] of a layer's [1, kv_heads, max_tokens, head_dim]."""
        return keys.transpose(0, 1), values.transpose(0, 1)


def _attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of q [kv_heads, group, tokens, head_dim] to keys and values [kv_heads, 1, stop, head_dim].

    The heads of a group share their keys without a copy: a single token's heads stand as queries side by side, and
    several tokens' see the keys through a stride of zero.
    """
    if q.shape[2] == 1:
        attended = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values)
        return attended.transpose(1, 2)
    shared = (-1, q.shape[1], -1, -1)
    return F.scaled_dot_product_attention(q, keys.expand(shared), values.expand(shared), attn_mask=mask)
