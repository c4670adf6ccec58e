"""Owns the model under training: its construction, how windows are laid out for it, its loss, and its attention."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.training.options import LoraOptions, ModelSize, OptionError, TrainingOptions
from midfill_lab.training.vocabulary import Vocabulary
from midfill_lab.training.windows import Window

BOUNDS_STEP = 64
"""Tokens to which a batch has a place for the bounds of an example: their number, and what is compiled for it, varies
with much smaller examples alone."""
NO_TARGET = -100
"""The target of a place that only fills up a part; torch's cross-entropy leaves it out."""
try:
    from torch.nn.attention import varlen
except ImportError:  # torch 2.9 and older
    varlen = None  # type: ignore[assignment]

WITHIN_EXAMPLES = "midfill_within_examples"
BLOCKED_UP_TO = 1024
BLOCK = 128
# Their logits are the output layer's, as those of some other models are not.
_Plain = LlamaForCausalLM | MistralForCausalLM | Qwen2ForCausalLM | Qwen3ForCausalLM
varlen_attn: Callable[..., Any] | None = getattr(varlen, "varlen_attn", None)
# Newer versions of torch want to be told that there are fewer heads of keys than of queries.
_GROUPED: dict[str, Any] = (
    {"enable_gqa": True} if varlen_attn and "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
)


class Batch(NamedTuple):
    """Windows of packed examples, as tensors of one device.

    Attributes:
        ids: the tokens, int64 [B, T].
        positions: of each in its example, int64 [B, T].
        bounds: where each example begins in the tokens of all windows, and where the last ends, which is repeated to
            fill up: int32 [N + 1].
        places: of the states that predict what the loss counts, in the states of all windows: int64 [L].
        targets: the tokens that they predict, or `NO_TARGET`, int64 [L].
        learned: how many of `targets` are tokens; the others are last.
    """

    ids: Tensor
    positions: Tensor
    bounds: Tensor
    places: Tensor
    targets: Tensor
    learned: int

    @classmethod
    def of(cls, window: Window, multiple: int = 1) -> Self:
        """Windows [B, T] on the CPU, with `places` and `targets` filled up to a multiple of `multiple`.

        The first token of an example is predicted from nothing: it is never learned.
        """
        rows, length = window.ids.shape
        begins = window.begins.copy()
        begins[:, 0] = True
        index = np.arange(length)
        positions = index - np.maximum.accumulate(np.where(begins, index, 0), axis=1)
        first = np.flatnonzero(begins)
        slots = -(-len(first) // (most := -(-rows * length // BOUNDS_STEP))) * most
        bounds = np.full(slots + 1, rows * length, dtype=np.int32)
        bounds[: len(first)] = first
        learned = window.learned & ~begins
        tokens = np.flatnonzero(learned)
        filled = -(-len(tokens) // multiple) * multiple
        places, targets = np.zeros(filled, dtype=np.int64), np.full(filled, NO_TARGET, dtype=np.int64)
        ids = window.ids.astype(np.int64)
        places[: len(tokens)], targets[: len(tokens)] = tokens - 1, ids[learned]
        return cls._make((*map(torch.from_numpy, (ids, positions, bounds, places, targets)), len(tokens)))

    def to(self, device: torch.device) -> Self:
        """The batch on a device; copies to a GPU overlap with what it computes."""
        pinned = device.type == "cuda"
        tensors = [tensor.pin_memory() if pinned else tensor for tensor in self if isinstance(tensor, Tensor)]
        moved = [tensor.to(device, non_blocking=pinned) for tensor in tensors]
        return type(self)._make((*moved, self.learned))


def part_tokens(device: torch.device) -> int:
    """Tokens whose logits are in memory at a time while the model learns; the backward pass computes them again."""
    return 512 if device.type == "cpu" else 8192


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


def use_attention_within_examples(model: nn.Module) -> None:
    """Make a model attend causally within the examples of a window, without a mask tensor from transformers.

    Leaves models as they are that have a sliding window, or logits other than the output layer's. Under `torch.compile`
    transformers builds masks of the whole window in every layer's graph.
    """
    if not isinstance(model, _Plain) or getattr(model.config, "sliding_window", None):
        return
    AttentionInterface.register(WITHIN_EXAMPLES, _attention)
    AttentionMaskInterface.register(WITHIN_EXAMPLES, _no_mask)
    model.set_attn_implementation(WITHIN_EXAMPLES)


def summed_loss(head: nn.Module, hidden: Tensor, targets: Tensor) -> Tensor:
    """Summed cross-entropy, in nats, of the targets [N] that the states [N, H] predict."""
    return functional.cross_entropy(head(hidden).float(), targets, reduction="sum", ignore_index=NO_TARGET)


def keeps_examples_apart(model: nn.Module) -> bool:
    """Whether the examples of a window do not see each other in this model."""
    base = without_adapters(model)
    return isinstance(base, _Plain) and base.config._attn_implementation == WITHIN_EXAMPLES


def token_loss(model: nn.Module, batch: Batch, summed: Callable[..., Tensor] = summed_loss) -> Tensor:
    """Summed cross-entropy, in nats, of predicting the learned tokens of a batch: a scalar.

    `summed` computes it for some of the tokens at a time.
    """
    base = without_adapters(model)
    if not isinstance(base, _Plain):
        return summed(nn.Identity(), _logits(model, batch), batch.targets)
    hidden = _hidden(base, batch)
    size = part_tokens(hidden.device)
    parts = zip(torch.split(hidden, size), torch.split(batch.targets, size), strict=True)
    losses = [checkpoint(summed, base.lm_head, *part, use_reentrant=False) for part in parts]
    return torch.stack(losses).sum() if losses else hidden.sum()


def token_losses(model: nn.Module, batch: Batch, *, compiled: bool = False) -> tuple[Tensor, Tensor]:
    """Cross-entropy and most probable token for every learned token of a batch, window by window: [N] and [N].

    compiled: whether what is compiled for training may be used: the batch then has to be as large as those of training,
    since everything else would be compiled anew, which takes minutes.
    """
    base = without_adapters(model)
    with torch.compiler.set_stance("default" if compiled else "force_eager"):
        head: nn.Module
        if isinstance(base, _Plain):
            states, head = _hidden(base, batch), base.lm_head
        else:
            states, head = _logits(model, batch), nn.Identity()
        losses: list[Tensor] = []
        likeliest: list[Tensor] = []
        size = part_tokens(states.device)
        for part, targets in zip(torch.split(states, size), torch.split(batch.targets, size), strict=True):
            logits = head(part)
            losses.append(functional.cross_entropy(logits.float(), targets, reduction="none").detach())
            likeliest.append(logits.argmax(-1))
    if not losses:
        return states.new_zeros(0).float(), batch.targets
    return torch.cat(losses)[: batch.learned], torch.cat(likeliest)[: batch.learned]


def compile_layers(model: nn.Module) -> None:
    """Compile each layer alone: all share the code of the first, which takes a tenth of the whole model's time.

    Every shape of a batch is compiled anew.
    """
    for layer in _layers(model):
        layer.compile(dynamic=False)


def uncompile_layers(model: nn.Module) -> None:
    """Undo `compile_layers`."""
    for layer in _layers(model):
        layer._compiled_call_impl = None


def _layers(model: nn.Module) -> nn.ModuleList:
    layers = without_adapters(model).get_submodule("model.layers")
    assert isinstance(layers, nn.ModuleList)
    return layers


def without_adapters(model: nn.Module) -> nn.Module:
    """The model itself, whose layers contain peft's adapters, instead of peft's wrapper."""
    unwrap = getattr(model, "get_base_model", None)
    base: nn.Module = unwrap() if callable(unwrap) else model
    return base


def _logits(model: nn.Module, batch: Batch) -> Tensor:
    """The logits [L, V] that predict the learned tokens."""
    # transformers masks what is not of the same example, which it tells by positions that begin anew. In families
    # without positions, such as those with ALiBi, examples see each other.
    has_positions = "position_ids" in inspect.signature(without_adapters(model).forward).parameters
    positions = {"position_ids": batch.positions} if has_positions else {}
    logits = model(input_ids=batch.ids, use_cache=False, **positions).logits
    chosen: Tensor = logits.flatten(0, 1).index_select(0, batch.places)
    return chosen


def _hidden(base: _Plain, batch: Batch) -> Tensor:
    """The states [L, H] that predict the learned tokens: the output layer may be a fifth of the cost."""
    found = base.model(
        input_ids=batch.ids, position_ids=batch.positions, cu_seq_lens_q=batch.bounds, use_cache=False
    ).last_hidden_state
    chosen: Tensor = found.flatten(0, 1).index_select(0, batch.places)
    return chosen


def _attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    *,
    position_ids: Tensor,
    scaling: float,
    cu_seq_lens_q: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    # query: [B, H, T, D]; key, value: [B, KV, T, D]; position_ids: [B, T]; cu_seq_lens_q: [N + 1] -> [B, T, H, D]
    batch, length = query.shape[0], query.shape[2]
    if cu_seq_lens_q is not None and varlen_attn is not None and takes_variable_lengths(query):
        tokens = [each.transpose(1, 2).flatten(0, 1) for each in (query, key, value)]
        bounds = (cu_seq_lens_q, cu_seq_lens_q, length, length)
        attended = varlen_attn(*tokens, *bounds, scale=scaling, window_size=(-1, 0), **_GROUPED)
        return attended.unflatten(0, (batch, length)), None
    if query.device.type == "cpu" and length <= BLOCKED_UP_TO:
        first = torch.arange(length) - position_ids
        return blocked_attention(query * scaling, key, value, first).transpose(1, 2).contiguous(), None
    if cu_seq_lens_q is not None and query.device.type == "cpu":
        tokens = [each.transpose(1, 2).flatten(0, 1) for each in (query, key, value)]
        return attention_by_example(*tokens, cu_seq_lens_q, scaling).unflatten(0, (batch, length)), None
    first = torch.arange(length, device=query.device) - position_ids
    mask = ~_is_hidden(0, length, first)
    attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=True)
    return attended.transpose(1, 2).contiguous(), None


def takes_variable_lengths(query: Tensor) -> bool:
    """Whether torch has a kernel for queries like these that computes nothing between examples.

    It is Flash Attention's: on NVIDIA's GPUs since Ampere, in 16 bits.
    """
    return (
        query.device.type == "cuda"
        and query.dtype in (torch.bfloat16, torch.float16)
        and torch.version.hip is None
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the lengths are others in each window
def attention_by_example(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, scaling: float) -> Tensor:
    """Causal attention of each example alone; a window of several costs less than its length squared.

    query: [T, H, D]; key, value: [T, KV, D]; bounds of the examples, as in a batch: [N + 1] -> [T, H, D]
    """
    lengths = [length for length in bounds.diff().tolist() if length]
    attended: list[Tensor] = []
    split = (_by_heads(each, lengths) for each in (query, key, value))
    for queries, keys, values in zip(*split, strict=True):
        one = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scaling, enable_gqa=True)
        attended.append(one[0].transpose(0, 1))
    return torch.cat(attended)


def _by_heads(tokens: Tensor, lengths: list[int]) -> list[Tensor]:
    """Each example's part of [T, H, D] as [1, H, length, D]."""
    return [part.transpose(0, 1)[None] for part in torch.split(tokens, lengths)]


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


def start_model(options: TrainingOptions, vocabulary: Vocabulary) -> nn.Module:
    """The model that a run of `options` starts with, in float32; frozen weights in half precision if enabled.

    Raises:
        BadModel: there is no such checkpoint.
        OptionError: adapters cannot be added to it.
    """
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if options.start is None:
        model = build_model(options.shape, vocabulary)
        use_attention_within_examples(model)
        return model
    loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        find_checkpoint(options.start).folder, dtype=_loaded_dtype(options)
    )
    embeddings = loaded.get_input_embeddings()
    assert isinstance(embeddings, nn.Embedding)
    if vocabulary.size > embeddings.num_embeddings:
        loaded.resize_token_embeddings(vocabulary.size)
    if options.gradient_checkpointing:
        kwargs = {"use_reentrant": False}
        loaded.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)  # type: ignore[no-untyped-call]
    use_attention_within_examples(loaded)
    nn.Module.train(loaded)
    return loaded if options.lora is None else _with_adapters(loaded, options.lora, vocabulary)


def _loaded_dtype(options: TrainingOptions) -> torch.dtype:
    """float32 for trainable weights; frozen ones have the dtype of computation."""
    if options.lora is None:
        return torch.float32
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.mixed_precision or "no", torch.float32)


def _with_adapters(model: PreTrainedModel, lora: LoraOptions, vocabulary: Vocabulary) -> nn.Module:
    """The model with adapters, and with trainable embeddings of the markers if the options ask for them."""
    from peft import LoraConfig, get_peft_model  # here, since it takes seconds, and other trainings do without it

    names = lora.target_modules
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        lora_dropout=lora.dropout,
        trainable_token_indices=sorted(vocabulary.markers.of_prompts) if lora.train_markers else None,
        target_modules=names[0] if names == ("all-linear",) else list(names),
    )
    try:
        with warnings.catch_warnings(category=FutureWarning, action="ignore"):  # of transformers, about peft
            return get_peft_model(model, config)
    except ValueError as error:
        raise OptionError(f"no adapters on {', '.join(names)}: {error}") from error
