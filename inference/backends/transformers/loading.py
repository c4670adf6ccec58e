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
    path: Path, context_tokens: int, device: torch.device | None, dtype: torch.dtype, max_memory: Memory | None = None
) -> GenericModel:
    """The model at `path`, a folder or a GGUF file, on `device`, or on all devices if None; BadModel if it cannot run.

    `max_memory` limits accelerate's use of each device, which leaves memory for others.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]  # it draws on stderr, the log
    placement = {"device_map": "auto", "max_memory": max_memory} if device is None else {"device_map": {"": device}}
    files = {"gguf_file": path.name} if path.is_file() else {"use_safetensors": True}
    folder = path.parent if path.is_file() else path
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, **files, **placement
        )
    except (OSError, ValueError, RuntimeError, ImportError, AttributeError) as error:
        raise BadModel(f"{path} cannot be loaded by transformers: {error}") from error
    return GenericModel(model, context_tokens, str(path))
