"""Loads a model through transformers; accelerate places models that do not fit one device."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from inference.backends.transformers.model import GenericModel
from protocol.errors import BadModel

Memory = dict[int | str, int | str]
"""Bytes, as a number or as "10GiB", by GPU number or "cpu"."""


def load_generic(
    folder: Path, context_tokens: int, device: torch.device | None, dtype: torch.dtype, max_memory: Memory | None = None
) -> GenericModel:
    """The model in `folder` on `device`, or on all devices if None; BadModel if it cannot be run.

    `max_memory` limits accelerate's use of each device, which leaves memory for others.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]  # it draws on stderr, the log
    placement = {"device_map": "auto", "max_memory": max_memory} if device is None else {"device_map": {"": device}}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, local_files_only=True, trust_remote_code=False, **placement
        )
    except (OSError, ValueError, RuntimeError, ImportError, AttributeError) as error:
        raise BadModel(f"transformers cannot load {folder}: {error}") from error
    return GenericModel(model, context_tokens, str(folder))
