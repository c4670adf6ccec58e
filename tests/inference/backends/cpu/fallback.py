"""The kernel's forwards in plain torch, rounding included: the oracle of the kernel's tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from inference.backends.cpu.decoder import check_call
from inference.backends.cpu.packing import WeightType, padded, vocabulary_type
from inference.backends.layer_weights import LayerWeights
from inference.backends.llama.decoder import rotate
from inference.backends.llama.weights import DecoderWeights
from inference.backends.model import Choice, Chunk
from inference.backends.sampling import greedy_choices
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.quantization import LARGEST_INT8, quantize
from inference.checkpoints.quantized_matrix import GROUP, QuantizedMatrix
from kv_store.workspace import KVWorkspace


class FallbackDecoder:
    """The interface of KernelDecoder, for any head dimension."""

    def __init__(
        self, architecture: Architecture, weights: DecoderWeights, tables: tuple[Tensor, Tensor], weight_type: WeightType
    ) -> None:
        self.architecture = architecture
        self._weights = weights
        self._cosines, self._sines = (table.float() for table in tables)
        self._weight_type = weight_type
        self._vocabulary_type = vocabulary_type(weight_type)
        self._embedding = _rounded_weights(weights.embedding, self._vocabulary_type)

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> list[Tensor]:
        """Logits [wanted, vocabulary] in float32 of the last `wanted` tokens of each chunk; writes KV."""
        check_call(self.architecture, len(self._cosines), chunks)
        return [self._forward(chunk) for chunk in chunks]

    def choices(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        """The same forward, and the greedy choice of what follows each of the last `wanted` tokens of each chunk."""
        logits = self.forward(chunks)
        return [greedy_choices(rows, chunk.allowed) for rows, chunk in zip(logits, chunks, strict=True)]

    def _forward(self, chunk: Chunk) -> Tensor:
        assert isinstance(chunk.workspace, KVWorkspace)
        shape = self.architecture
        x = F.embedding(torch.tensor(chunk.token_ids), self._embedding).float() * shape.embedding_scale
        for index, layer in enumerate(self._weights.layers):
            keys, values = (cache.squeeze(0) for cache in chunk.workspace.layer(index))
            attended = self._attend(layer, self._normed(x, layer.attention_norm), keys, values, chunk.start)
            x = x + shape.residual_scale * self._project(attended, layer.attention_out, layer.attention_out_bias)
            y = self._normed(x, layer.mlp_norm)
            gate, up = self._project(y, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
            x = x + shape.residual_scale * self._project(F.silu(gate) * up, layer.down, layer.down_bias)
        last = x[len(x) - chunk.wanted :]
        normed = self._normed(last, self._weights.final_norm)
        return _product(normed, self._weights.head, self._vocabulary_type) * shape.logits_scale

    def _attend(self, layer: LayerWeights, x: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        """x: [tokens, hidden]; keys, values: [kv_heads, max_tokens, head_dim]; [tokens, heads * head_dim] comes out."""
        shape = self.architecture
        stop = start + len(x)
        qkv = self._project(x, layer.qkv, layer.qkv_bias).view(len(x), -1, shape.head_dim).transpose(0, 1)
        q, k, v = torch.split(qkv, [shape.heads, shape.kv_heads, shape.kv_heads])  # each [heads, tokens, head_dim]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._normed(q, layer.q_norm), self._normed(k, layer.k_norm)
        tables = self._cosines[start:stop], self._sines[start:stop]
        keys[:, start:stop] = rotate(k, *tables)
        values[:, start:stop] = v
        group = shape.heads // shape.kv_heads
        scores = rotate(q, *tables) @ keys[:, :stop].float().repeat_interleave(group, 0).transpose(1, 2)
        visible = torch.arange(stop) <= torch.arange(start, stop)[:, None]
        shares = torch.softmax((scores * shape.attention_scale).masked_fill(~visible, float("-inf")), dim=-1)
        return (shares @ values[:, :stop].float().repeat_interleave(group, 0)).transpose(0, 1).flatten(1)

    def _project(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x: [tokens, columns] times a matrix [rows, columns], with the rounding of the weight type."""
        result = _product(x, weight, self._weight_type)
        return result if bias is None else result + bias.float()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight.float(), self.architecture.norm_epsilon)


def _product(x: Tensor, weight: Tensor | QuantizedMatrix, weight_type: WeightType) -> Tensor:
    return F.linear(_rounded_inputs(x, weight_type), _rounded_weights(weight, weight_type))


def _rounded_inputs(x: Tensor, weight_type: WeightType) -> Tensor:
    """What is left of inputs [tokens, columns]: for quantized weights they are int8, with a scale per GROUP columns."""
    if weight_type == "float32":
        return x
    if weight_type == "bfloat16":
        return x.bfloat16().float()
    groups = _in_groups(x)
    limits = groups.abs().amax(dim=2, keepdim=True)
    factors = torch.where(limits > 0, LARGEST_INT8 / limits, 0.0)
    return ((groups * factors).round() * (limits / LARGEST_INT8)).flatten(1)[:, : x.shape[1]]


def _rounded_weights(weight: Tensor | QuantizedMatrix, weight_type: WeightType) -> Tensor:
    if isinstance(weight, QuantizedMatrix):
        return weight.dequantized()
    if weight_type == "float32":
        return weight.float()
    if weight_type == "bfloat16":
        return weight.bfloat16().float()
    return quantize(_in_groups(weight).flatten(1), weight_type).dequantized()[:, : weight.shape[1]]


def _in_groups(x: Tensor) -> Tensor:
    """[rows, columns] as [rows, groups, GROUP], with zeros at the end."""
    columns = padded(x.shape[1], GROUP)
    return F.pad(x.float(), (0, columns - x.shape[1])).view(len(x), columns // GROUP, GROUP)
