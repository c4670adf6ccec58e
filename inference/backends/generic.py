"""Models on transformers' own modules: loads any causal model, and runs it on the static buffers of a workspace."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache
from transformers.utils.logging import disable_progress_bar

from inference.backends.model import Choice, Chunk
from inference.backends.sampling import choose
from inference.backends.self_check import check_reuse
from inference.checkpoints.generic_shape import auto_class
from inference.checkpoints.gguf.file import known_by_suffix
from kv_store.workspace import KVShape, KVWorkspace
from protocol.errors import BadModel, bad_model


class SplitWorkspace:
    """Implements `Workspace`; its payloads equal those of a `KVWorkspace` on the first device."""

    def __init__(self, shape: KVShape, max_tokens: int, devices: Sequence[torch.device]) -> None:
        """`devices` holds each layer's device."""
        assert len(devices) == shape.num_layers, f"{len(devices)} devices for {shape.num_layers} layers"
        self.shape = shape
        self.max_tokens = max_tokens
        self._parts = [
            KVWorkspace(KVShape(len(list(run)), shape.num_kv_heads, shape.head_dim, shape.dtype), max_tokens, device)
            for device, run in groupby(devices)
        ]

    @property
    def bytes_per_token(self) -> int:
        return self.shape.bytes_per_token

    @property
    def device(self) -> torch.device:
        """Device of payloads."""
        return self._parts[0].device

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """K and V of each layer, each [1, kv_heads, max_tokens, head_dim], on the layer's device."""
        return [part.layer(index) for part in self._parts for index in range(part.shape.num_layers)]

    def export_kv(self, start: int, stop: int) -> Tensor:
        return torch.cat([part.export_kv(start, stop).to(self.device) for part in self._parts])

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        if payload.shape[0] != self.shape.num_layers:
            raise ValueError(f"the payload has {payload.shape[0]} layers, but the model has {self.shape.num_layers}")
        first = 0
        for part in self._parts:
            part.import_kv(start, payload[first : first + part.shape.num_layers], count, skip)
            first += part.shape.num_layers


class GenericModel:
    """Implements `Model` for architectures that our decoder does not support; slower than the decoder."""

    def __init__(self, model: PreTrainedModel, context_tokens: int, where: str) -> None:
        """BadModel, naming `where`, if a token's KV does not have the same shape in every layer."""
        self._model = model
        model.train(False)
        self._takes_logits_to_keep = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.context_tokens = context_tokens
        self.kv_shape, self._devices = _kv_of_one_token(model, where)

    @property
    def device(self) -> torch.device:
        """Device of KV payloads."""
        return self._devices[0]

    @property
    def arithmetic(self) -> str:
        """What KV depends on besides checkpoint and dtypes."""
        devices = ", ".join(sorted({device.type for device in self._devices}))
        return f"transformers {transformers.__version__} on torch {torch.__version__}, {devices}"

    @property
    def weights_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self._model.parameters())

    def new_workspace(self) -> SplitWorkspace:
        return SplitWorkspace(self.kv_shape, self.context_tokens, self._devices)

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        """Runs one sequence after another: transformers' modules only batch sequences of equal length."""
        return [choose(self.logits(chunk)[: chunk.wanted], chunk) for chunk in chunks]

    @torch.inference_mode()
    def logits(self, chunk: Chunk) -> Tensor:
        """Logits [at least 1, vocabulary] in float32 of the last `wanted` tokens; writes the KV of the chunk."""
        start, stop, workspace = chunk.start, chunk.stop, chunk.workspace
        assert 0 <= start < stop <= self.context_tokens, (
            f"tokens [{start}, {stop}) exceed the context of {self.context_tokens}"
        )
        assert isinstance(workspace, SplitWorkspace), f"a workspace of type {type(workspace).__name__}"
        kept = max(1, chunk.wanted)  # transformers interprets 0 as all
        keep = {"logits_to_keep": kept} if self._takes_logits_to_keep else {}
        output = self._model(
            input_ids=torch.tensor([list(chunk.token_ids)], device=_input_device(self._model)),
            past_key_values=Cache(layers=[WorkspaceLayer(*layer, start) for layer in workspace.layers()]),
            use_cache=True,
            **keep,
        )
        logits: Tensor = output.logits[0, -kept:]
        return logits.float()


class WorkspaceLayer(CacheLayerMixin):  # type: ignore[no-untyped-call] # transformers leaves its base class untyped
    """One layer's KV for transformers' attention: a view of the workspace up to the last written token."""

    is_sliding = False  # keeps all tokens; a model with a shorter window masks the others

    def __init__(self, keys: Tensor, values: Tensor, tokens: int) -> None:
        """`keys` and `values` are buffers [1, kv_heads, max_tokens, head_dim], of which `tokens` tokens are written."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._keys, self._values = keys, values
        self._tokens = tokens
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: the buffers exist already."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append states [1, kv_heads, tokens, head_dim]; returns all written so far."""
        start, self._tokens = self._tokens, self._tokens + key_states.shape[-2]
        self._keys[:, :, start : self._tokens] = key_states
        self._values[:, :, start : self._tokens] = value_states
        return self._keys[:, :, : self._tokens], self._values[:, :, : self._tokens]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._tokens + query_length, 0

    def get_seq_length(self) -> int:
        return self._tokens

    def get_max_length(self) -> int:
        return int(self._keys.shape[2])


def _input_device(model: PreTrainedModel) -> torch.device:
    """Device for token ids; the CPU if accelerate offloads the weights between forwards (device `meta`)."""
    return torch.device("cpu") if model.device.type == "meta" else model.device


@torch.inference_mode()
def _kv_of_one_token(model: PreTrainedModel, where: str) -> tuple[KVShape, list[torch.device]]:
    """Shape of one token's KV, and each layer's device; determined by running one token."""
    cache = DynamicCache()  # without the config: a model that keeps something else than it says fails here
    model(
        input_ids=torch.zeros(1, 1, dtype=torch.long, device=_input_device(model)),
        past_key_values=cache,
        use_cache=True,
    )
    kept = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    tensors = [tensor for tensor in kept if isinstance(tensor, Tensor)]
    shapes = {(tuple(tensor.shape), tensor.dtype) for tensor in tensors}
    if len(shapes) != 1 or len(tensors) != 2 * len(cache.layers):
        raise BadModel(
            f"{where}: models of type {model.config.model_type!r} do not keep keys and values of one shape in "
            "every layer, so midfill cannot reuse them"
        )
    ((shape, dtype),) = shapes
    return KVShape(len(cache.layers), shape[1], shape[3], dtype), [keys.device for keys in tensors[::2]]


Memory = dict[int | str, int | str]
"""Bytes, as a number or as "10GiB", by GPU number or "cpu"."""


def load_generic(
    path: Path,
    context_tokens: int,
    device: torch.device | None,
    dtype: torch.dtype,
    max_memory: Memory | None = None,
    fields: Mapping[str, Any] | None = None,
) -> GenericModel:
    """The model at `path`, a folder or a GGUF file, on `device`, or on all devices if None; BadModel if it cannot run.

    `max_memory` limits accelerate's use of each device, which leaves memory for others. `fields` of the config are a
    GGUF file's, of which transformers overlooks some.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]  # it draws on stderr, the log
    placement = {"device_map": "auto", "max_memory": max_memory} if device is None else {"device_map": {"": device}}
    with bad_model(f"transformers cannot load {path}"), ExitStack() as stack:
        files = _gguf(stack, path, fields or {}) if path.is_file() else _folder(path)
        options = {"dtype": dtype, "local_files_only": True, "output_loading_info": True, **files, **placement}
        folder = path.parent if path.is_file() else path
        loader, _ = auto_class(files["config"], str(path))
        model, found = loader.from_pretrained(folder, **options)
        if missing := sorted(found["missing_keys"]):  # transformers would make them up
            raise BadModel(f"{path} lacks {len(missing)} tensors, such as {missing[0]!r}: it is incomplete")
        generic = GenericModel(model, context_tokens, str(path))
        check_reuse(generic, model.config.get_text_config(decoder=True).vocab_size, dtype, str(path))
    return generic


def _folder(path: Path) -> dict[str, Any]:
    """The config of a model folder, for from_pretrained."""
    config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    return {"config": config, "use_safetensors": True}


def _gguf(stack: ExitStack, path: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The file and its config, for from_pretrained."""
    path = stack.enter_context(known_by_suffix(path))
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    for name, value in fields.items():
        if hasattr(config, name) and getattr(config, name) != value:
            setattr(config, name, value)
    return {"gguf_file": str(path), "config": config}  # the whole path: it may lie elsewhere
