"""Owns the model under training: its construction, its loss, and attention within examples that compiles well."""

import inspect
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
from inference.training.examples.windows import Window
from inference.training.options import ModelSize

WITHIN_EXAMPLES = "midfill_within_examples"
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


def use_attention_within_examples(model: LlamaForCausalLM) -> None:
    """Make the model attend causally within the examples of a window, without a mask tensor from transformers.

    Under `torch.compile` transformers builds masks of the whole window in every layer's graph.
    """
    AttentionInterface.register(WITHIN_EXAMPLES, _attention)
    AttentionMaskInterface.register(WITHIN_EXAMPLES, _no_mask)
    model.set_attn_implementation(WITHIN_EXAMPLES)


def token_loss(model: nn.Module, window: Window) -> Tensor:
    """Summed cross-entropy, in nats, of predicting the learned tokens of windows [B, T]: a scalar.

    The first token of a row is predicted from nothing, and never counted.
    """
    base = without_adapters(model)
    if not isinstance(base, _Plain):
        logits, targets = _selected(model, window)
        return _summed_loss(nn.Identity(), logits, targets)
    hidden, targets = _hidden(base, window)
    parts = zip(torch.split(hidden, PART), torch.split(targets, PART), strict=True)
    losses = [checkpoint(_summed_loss, base.lm_head, *part, use_reentrant=False) for part in parts]
    return torch.stack(losses).sum() if losses else hidden.sum()


def token_losses(model: nn.Module, window: Window) -> tuple[Tensor, Tensor]:
    """Cross-entropy and most probable token for every learned token of windows [B, T], row by row: [N] and [N]."""
    with torch.compiler.set_stance("force_eager"):  # every length would be compiled anew, which takes minutes
        logits, targets = _selected(model, window)
    return functional.cross_entropy(logits.float(), targets, reduction="none"), logits.argmax(-1)


def count_learned(learned: Tensor) -> int:
    """How many tokens the losses count."""
    return int(learned[:, 1:].sum())


def without_adapters(model: nn.Module) -> nn.Module:
    """The model itself, whose layers contain peft's adapters, instead of peft's wrapper."""
    unwrap = getattr(model, "get_base_model", None)
    base: nn.Module = unwrap() if callable(unwrap) else model
    return base


def _selected(model: nn.Module, window: Window) -> tuple[Tensor, Tensor]:
    """Logits [N, V] for the learned tokens alone, and those tokens [N]: the output layer may be a fifth of the cost."""
    base = without_adapters(model)
    if isinstance(base, _Plain):
        hidden, targets = _hidden(base, window)
        return base.lm_head(hidden), targets
    chosen = window.learned[:, 1:]
    # transformers masks what is not of the same example, which it tells by positions that begin anew. In families
    # without positions, such as those with ALiBi, examples see each other.
    has_positions = "position_ids" in inspect.signature(base.forward).parameters
    positions = {"position_ids": window.positions} if has_positions else {}
    logits = model(input_ids=window.ids, use_cache=False, **positions).logits
    return logits[:, :-1][chosen], window.ids[:, 1:][chosen]


def _hidden(base: _Plain, window: Window) -> tuple[Tensor, Tensor]:
    """The states [N, H] that predict the learned tokens, and those tokens [N]."""
    chosen = window.learned[:, 1:]
    hidden = base.model(input_ids=window.ids, position_ids=window.positions, use_cache=False).last_hidden_state
    return hidden[:, :-1][chosen], window.ids[:, 1:][chosen]


def _summed_loss(head: nn.Module, hidden: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(head(hidden).float(), targets, reduction="sum")


def _attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    *,
    position_ids: Tensor,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    # query: [B, H, T, D]; key, value: [B, KV, T, D]; position_ids: [B, T] -> [B, T, H, D]
    first = torch.arange(query.shape[2], device=query.device) - position_ids
    if query.device.type == "cpu" and query.shape[2] <= BLOCKED_UP_TO:
        attended = blocked_attention(query * scaling, key, value, first)
    else:
        mask = ~_is_hidden(0, query.shape[2], first)
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scaling, enable_gqa=True
        )
    return attended.transpose(1, 2).contiguous(), None


def _is_hidden(start: int, end: int, first: Tensor) -> Tensor:
    """Whether queries `start` to `end` must not see each of the keys up to `end`: [B, 1, end - start, end].

    first: the key where the example of each query begins, [B, T].
    """
    keys = torch.arange(end, device=first.device)
    after = keys > torch.arange(start, end, device=first.device)[:, None]
    return (after | (keys < first[:, start:end, None]))[:, None]


def blocked_attention(query: Tensor, key: Tensor, value: Tensor, first: Tensor) -> Tensor:
    """Causal attention as plain matrix products over groups of queries, for short windows on a CPU.

    At 512 tokens torch's flash kernel takes nearly half of a small model's bf16 training step on a CPU; this form,
    compiled, makes the step a fifth faster. At 1,024 tokens it makes a step of 135M parameters a tenth faster, not
    compiled. At 2,048 tokens the flash kernel is faster.

    query, scaled: [B, H, T, D]; key, value: [B, KV, T, D]; first, the key where each query's example begins: [B, T]
    -> [B, H, T, D]
    """
    batch, heads, length, width = query.shape
    groups = key.shape[1]
    blocks: list[Tensor] = []
    for start in range(0, length, BLOCK):
        end = min(length, start + BLOCK)
        rows = query[:, :, start:end].reshape(batch * groups, -1, width)
        keys, values = (part[:, :, :end].reshape(batch * groups, end, width) for part in (key, value))
        scores = torch.bmm(rows, keys.transpose(1, 2)).view(batch, heads, end - start, end).float()
        weights = scores.masked_fill(_is_hidden(start, end, first), float("-inf")).softmax(-1).to(query.dtype)
        blocks.append(torch.bmm(weights.view(batch * groups, -1, end), values).view(batch, heads, -1, width))
    return torch.cat(blocks, 2)


def _no_mask(*_: Any, **__: Any) -> None:
    return None
