"""Owns the model under training: its construction, its loss, and causal attention that compiles well."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    LlamaConfig,
    LlamaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from inference.training.corpus.vocabulary import Vocabulary
from inference.training.options import ModelSize

CAUSAL = "midfill_causal"
BLOCKED_UP_TO = 1024
BLOCK = 128
PART = 512
"""Tokens whose logits are in memory at a time while the model learns; the backward pass computes them again."""
# Their logits are the output layer's, as those of some other models are not.
_Plain = LlamaForCausalLM | MistralForCausalLM | Qwen2ForCausalLM | Qwen3ForCausalLM


def build_model(shape: ModelSize, vocabulary: Vocabulary) -> LlamaForCausalLM:
    """A randomly initialized Llama model with tied embeddings, in float32."""
    config = LlamaConfig(
        vocab_size=vocabulary.size,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.positions,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=vocabulary.markers.end_of_text,
        pad_token_id=vocabulary.markers.padding,
    )
    return LlamaForCausalLM(config)


def use_causal_attention(model: LlamaForCausalLM) -> None:
    """Make the model attend causally without a mask tensor.

    Under `torch.compile` transformers builds a mask that excludes the flash kernel. Training windows have neither
    padding nor a cache, so plain causal attention suffices.
    """
    AttentionInterface.register(CAUSAL, _causal_attention)
    AttentionMaskInterface.register(CAUSAL, _no_mask)
    model.set_attn_implementation(CAUSAL)


def token_loss(model: nn.Module, ids: Tensor, learned: Tensor) -> Tensor:
    """Summed cross-entropy, in nats, of predicting the `learned` tokens; ids, learned: [B, T] -> scalar.

    The first token of a row is predicted from nothing, and never counted.
    """
    base = without_adapters(model)
    if not isinstance(base, _Plain):
        logits, targets = _selected(model, ids, learned)
        return _summed_loss(nn.Identity(), logits, targets)
    hidden, targets = _hidden(base, ids, learned)
    parts = zip(torch.split(hidden, PART), torch.split(targets, PART), strict=True)
    losses = [checkpoint(_summed_loss, base.lm_head, *part, use_reentrant=False) for part in parts]
    return torch.stack(losses).sum() if losses else hidden.sum()


def token_losses(model: nn.Module, ids: Tensor, learned: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy and most probable token for every `learned` token, row by row.

    ids, learned: [B, T] -> float32 [N], int64 [N]
    """
    with torch.compiler.set_stance("force_eager"):  # every length would be compiled anew, which takes minutes
        logits, targets = _selected(model, ids, learned)
    return functional.cross_entropy(logits.float(), targets, reduction="none"), logits.argmax(-1)


def count_learned(learned: Tensor) -> int:
    """How many tokens the losses count."""
    return int(learned[:, 1:].sum())


def without_adapters(model: nn.Module) -> nn.Module:
    """The model itself, whose layers contain peft's adapters, instead of peft's wrapper."""
    unwrap = getattr(model, "get_base_model", None)
    base: nn.Module = unwrap() if callable(unwrap) else model
    return base


def _selected(model: nn.Module, ids: Tensor, learned: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [N, V] for the learned tokens alone, and those tokens [N]: the output layer may be a fifth of the cost."""
    chosen = learned[:, 1:]
    base = without_adapters(model)
    if isinstance(base, _Plain):
        hidden, targets = _hidden(base, ids, learned)
        return base.lm_head(hidden), targets
    return model(input_ids=ids, use_cache=False).logits[:, :-1][chosen], ids[:, 1:][chosen]


def _hidden(base: _Plain, ids: Tensor, learned: Tensor) -> tuple[Tensor, Tensor]:
    """The states [N, H] that predict the learned tokens, and those tokens [N]."""
    chosen = learned[:, 1:]
    hidden = base.model(input_ids=ids, use_cache=False).last_hidden_state
    return hidden[:, :-1][chosen], ids[:, 1:][chosen]


def _summed_loss(head: nn.Module, hidden: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(head(hidden).float(), targets, reduction="sum")


def _causal_attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    # query: [B, H, T, D]; key, value: [B, KV, T, D] -> [B, T, H, D]
    if query.device.type == "cpu" and query.shape[2] <= BLOCKED_UP_TO and scaling is not None:
        attended = blocked_attention(query * scaling, key, value)
    else:
        attended = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=True
        )
    return attended.transpose(1, 2).contiguous(), None


def blocked_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention as plain matrix products over groups of queries, for short windows on a CPU.

    At 512 tokens torch's flash kernel takes nearly half of a small model's bf16 training step on a CPU; this form,
    compiled, makes the step a fifth faster. At 1,024 tokens it makes a step of 135M parameters a tenth faster, not
    compiled. At 2,048 tokens the flash kernel is faster.

    query, scaled: [B, H, T, D]; key, value: [B, KV, T, D] -> [B, H, T, D]
    """
    batch, heads, length, width = query.shape
    groups = key.shape[1]
    blocks: list[Tensor] = []
    for start in range(0, length, BLOCK):
        end = min(length, start + BLOCK)
        rows = query[:, :, start:end].reshape(batch * groups, -1, width)
        keys, values = (part[:, :, :end].reshape(batch * groups, end, width) for part in (key, value))
        scores = torch.bmm(rows, keys.transpose(1, 2)).view(batch, heads, end - start, end).float()
        hidden = torch.arange(end, device=query.device) > torch.arange(start, end, device=query.device)[:, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1).to(query.dtype)
        blocks.append(torch.bmm(weights.view(batch * groups, -1, end), values).view(batch, heads, -1, width))
    return torch.cat(blocks, 2)


def _no_mask(*_: Any, **__: Any) -> None:
    return None
