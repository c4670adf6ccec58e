"""Builds the model that a run starts from: a new one or a checkpoint, trained fully or by low-rank adapters."""

import warnings

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.errors import OptionError
from midfill_lab.training.options import LoraOptions, TrainingOptions
from midfill_lab.training.run.modeling import build_model, use_attention_within_examples


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
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise OptionError("LoRA needs the package peft: install peft>=0.17") from error
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
