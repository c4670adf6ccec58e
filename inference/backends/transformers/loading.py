"""Loads a model through transformers; accelerate places models that do not fit one device."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from inference.backends.transformers.model import GenericModel
from inference.checkpoints.gguf.file import known_by_suffix
from protocol.errors import BadModel

Memory = dict[int | str, int | str]
"""Bytes, as a number or as "10GiB", by GPU number or "cpu"."""


def load_generic(
    path: Path,
    context_tokens: int,
    device: torch.device | None,
    dtype: torch.dtype,
    max_memory: Memory | None = None,
    rope_theta: float | None = None,
) -> GenericModel:
    """The model at `path`, a folder or a GGUF file, on `device`, or on all devices if None; BadModel if it cannot run.

    `max_memory` limits accelerate's use of each device, which leaves memory for others. `rope_theta` is a GGUF file's:
    transformers overlooks that of some architectures.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]  # it draws on stderr, the log
    placement = {"device_map": "auto", "max_memory": max_memory} if device is None else {"device_map": {"": device}}
    try:
        with ExitStack() as stack:
            files: dict[str, Any] = _gguf(stack, path, rope_theta) if path.is_file() else {"use_safetensors": True}
            model = AutoModelForCausalLM.from_pretrained(
                path.parent if path.is_file() else path,
                **{"dtype": dtype, "local_files_only": True, "trust_remote_code": False, **files, **placement},
            )
    except (OSError, ValueError, RuntimeError, ImportError, AttributeError, KeyError) as error:
        raise BadModel(f"transformers cannot load {path}: {error}") from error
    return GenericModel(model, context_tokens, str(path))


def _gguf(stack: ExitStack, path: Path, rope_theta: float | None) -> dict[str, Any]:
    """The file and its config, for from_pretrained."""
    path = stack.enter_context(known_by_suffix(path))
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    if rope_theta is not None:
        config.rope_parameters = {**config.rope_parameters, "rope_theta": rope_theta}
    return {"gguf_file": str(path), "config": config}  # the whole path: it may lie elsewhere
