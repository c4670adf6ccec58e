"""Models on transformers' own modules: loads any causal model, runs it on workspaces, and checks its reuse."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, LinearAttentionCacheLayerMixin
from transformers.utils.logging import disable_progress_bar

from inference.backends.cache_layers import LayerMemory, SplitWorkspace, StateLayer, StateWorkspace
from inference.backends.model import Choice, Chunk
from inference.backends.sampling import choose
from inference.checkpoints.generic_shape import INDEX_ALONE, auto_class
from inference.checkpoints.gguf.file import known_by_suffix
from kv_store.interface import Workspace
from kv_store.main_memory import KVShape
from kv_store.snapshots import Snapshots, budget_of_a_slot
from kv_store.workspace import StateLayout
from protocol.errors import BadModel, bad_model

SCANS_BEGIN_EMPTY = ("falcon_mamba", "jamba", "mamba", "zamba")
"""Types whose modules go on from a state with one token alone: with several, they scan as if nothing came before."""
CHECKED_TOKENS = 48
CHECKED_CUTS = (16, 17, 40)
"""Where the pieces end: one of a single token, as in decoding, among others."""
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 0.06, torch.float16: 0.01}
"""Root mean square of what rounding changes in logits, in their standard deviations: some ten times what it is in four
layers, since it grows with their number. A single logit varies too much to tell a fault in 16 bits."""


class GenericModel:
    """Implements `Model` for architectures that our decoder does not support; slower than the decoder."""

    def __init__(self, model: PreTrainedModel, context_tokens: int, where: str) -> None:
        """BadModel, naming `where`, if a token's KV does not have the same shape in every layer that has some."""
        self._model = model
        model.train(False)
        parameters = inspect.signature(model.forward).parameters
        self._takes_logits_to_keep = "logits_to_keep" in parameters
        self._cache_name = "cache_params" if "cache_params" in parameters else "past_key_values"
        self.context_tokens = context_tokens
        self.kv_shape, self._devices, self._kinds = self._find_layers(where)
        self.snapshot_bytes, self.state_layout = 0, StateLayout(())
        """Of one snapshot of the recurrent layers; 0 for a model without any."""
        if any(kind.states for kind in self._kinds):
            self._find_states()

    @property
    def device(self) -> torch.device:
        """Device of KV payloads."""
        return self._devices[0]

    @property
    def arithmetic(self) -> str:
        """A name for all that KV depends on besides checkpoint and dtypes."""
        devices = ", ".join(sorted({device.type for device in self._devices}))
        return f"transformers {transformers.__version__} on torch {torch.__version__}, {devices}"

    @property
    def weights_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self._model.parameters())

    def new_workspace(self) -> SplitWorkspace:
        if not self.snapshot_bytes:
            return SplitWorkspace(self.kv_shape, self.context_tokens, self._devices)
        snapshots = Snapshots(budget_of_a_slot(self.snapshot_bytes))
        return StateWorkspace(self.kv_shape, self.context_tokens, self._devices, self._kinds, snapshots)

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        """Runs one sequence after another: transformers' modules only batch sequences of equal length."""
        return [choose(self.logits(chunk)[: chunk.wanted], chunk) for chunk in chunks]

    @torch.inference_mode()
    def logits(self, chunk: Chunk) -> Tensor:
        """Logits [at least 1, vocabulary] in float32 of the last `wanted` tokens; writes the KV of the chunk."""
        start, stop, workspace = chunk.start, chunk.stop, chunk.workspace
        assert 0 <= start < stop <= self.context_tokens, f"tokens [{start}, {stop}) exceed the context of {self.context_tokens}"
        assert isinstance(workspace, SplitWorkspace), f"a workspace of type {type(workspace).__name__}"
        one_by_one = start > 0 and self._model.config.model_type in SCANS_BEGIN_EMPTY
        layers = workspace.cache_layers(start, 1 if one_by_one else stop - start)
        token_ids, wanted = list(chunk.token_ids), max(1, chunk.wanted)  # transformers interprets 0 as all
        runs = [[token_id] for token_id in token_ids] if one_by_one else [token_ids]
        logits = torch.cat([self._run(run, Cache(layers=layers), wanted) for run in runs])
        workspace.keep(layers, stop)
        return logits[-wanted:].float()

    def _run(self, token_ids: Sequence[int], cache: Cache, wanted: int) -> Tensor:
        """Logits [at most `wanted`, vocabulary] of the last tokens."""
        output = self._model(
            input_ids=torch.tensor([token_ids], device=_input_device(self._model)),
            use_cache=True,
            **{self._cache_name: cache, **({"logits_to_keep": wanted} if self._takes_logits_to_keep else {})},
        )
        logits: Tensor = output.logits[0, -wanted:]
        return logits

    @torch.inference_mode()
    def _find_layers(self, where: str) -> tuple[KVShape, list[torch.device], list[LayerMemory]]:
        """The shape of one token's KV, the device of each layer that has some, and what each layer keeps.

        Found by running one token.
        """
        config = self._model.config
        cache = DynamicCache(config=config)
        self._run([0], cache, 1)
        kept = [(getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in cache.layers]
        pairs = [(k, v) for k, v in kept if isinstance(k, Tensor) and isinstance(v, Tensor)]
        shapes = {(tuple(tensor.shape), tensor.dtype) for pair in pairs for tensor in pair}
        kinds = [
            LayerMemory(isinstance(keys, Tensor), _states_of(layer)) for layer, (keys, _) in zip(cache.layers, kept, strict=True)
        ]
        if not pairs and any(kind.states for kind in kinds):
            return KVShape(1, *INDEX_ALONE, "float32"), [_input_device(self._model)], kinds
        if len(shapes) != 1:
            raise BadModel(
                f"{where}: models of type {config.model_type!r} do not keep keys and values of one shape in "
                "every layer, so midfill cannot reuse them"
            )
        ((shape, dtype),) = shapes
        return (
            KVShape(len(pairs), shape[1], shape[3], str(dtype).removeprefix("torch.")),
            [keys.device for keys, _ in pairs],
            kinds,
        )

    @torch.inference_mode()
    def _find_states(self) -> None:
        """Find by running two tokens what a snapshot has, and which layers' modules write into their states."""
        workspace = StateWorkspace(self.kv_shape, 2, self._devices, self._kinds, Snapshots(0))
        for start in range(2):
            layers = workspace.cache_layers(start, 1)
            self._run([0], Cache(layers=layers), 1)
            workspace.keep(layers, start + 1)
        self._kinds = [
            replace(kind, writes_state=isinstance(layer, StateLayer) and not layer.returned)
            for kind, layer in zip(self._kinds, layers, strict=True)
        ]
        found = workspace.snapshots[2]
        assert isinstance(found.state, tuple), f"a {type(found.state).__name__} as a state"
        self.snapshot_bytes, self.state_layout = found.size_bytes, StateLayout.of(found.state)


def _states_of(layer: object) -> int:
    return layer.number_of_states if isinstance(layer, LinearAttentionCacheLayerMixin) else 0


def _input_device(model: PreTrainedModel) -> torch.device:
    """Device for token ids; the CPU if accelerate offloads the weights between forwards (device `meta`)."""
    return torch.device("cpu") if model.device.type == "meta" else model.device


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
        for tensor in chain(model.parameters(), model.buffers()):
            if tensor.device.type == "cpu":  # still mapped: the file may be cut, or written over, while the model runs
                tensor.data = tensor.data.clone()
        generic = GenericModel(model, context_tokens, str(path))
        _check_reuse(generic, model.config.get_text_config(decoder=True).vocab_size, dtype, str(path))
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


def _check_reuse(model: GenericModel, vocabulary: int, dtype: torch.dtype, where: str) -> None:
    """BadModel, naming `where`, if logits depend on how a text reaches the model, which reused KV could not mend."""
    count = min(CHECKED_TOKENS, model.context_tokens)
    token_ids = [(7919 * (place + 1)) % vocabulary for place in range(count)]

    def logits(workspace: Workspace, start: int, stop: int) -> Tensor:
        return model.logits(Chunk(token_ids[start:stop], start, workspace, stop - start)).cpu()

    at_once = logits(model.new_workspace(), 0, count)
    workspace, ends = model.new_workspace(), [*(cut for cut in CHECKED_CUTS if cut < count), count]
    in_pieces = [logits(workspace, start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    first = ends[0]
    _compare(torch.cat(in_pieces), at_once, "in pieces", dtype, where)
    if first < count:
        _compare(logits(workspace, first, count), at_once[first:], "after a crop", dtype, where)


def _compare(found: Tensor, expected: Tensor, how: str, dtype: torch.dtype, where: str) -> None:
    difference = float((found - expected).square().mean().sqrt() / expected.std())
    if not difference <= TOLERANCE[dtype]:  # not a number is none either
        raise BadModel(
            f"{where}: transformers computes other logits for a text {how} than at once (by {difference:.2g} standard "
            "deviations), so resident KV cannot be reused: choose another model, or run it in llama-server (the setting engine)"
        )
