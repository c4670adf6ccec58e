"""Describes a model found on this machine from its metadata: family, size, quantization, FIM format, and faults."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inference.checkpoints.checkpoint import Checkpoint, open_checkpoint
from inference.checkpoints.folder import quantization_method, unread
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.checkpoints.gguf.header import GgufHeader, read_gguf_header
from inference.checkpoints.local_models.found import Found, Source
from inference.checkpoints.weights import StoredTensor
from inference.text.fim import AUTO, choose_format
from protocol.errors import BadModel, MidfillError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this machine, as its metadata describe it; a damaged one has a problem and little else.

    Attributes:
        name: as `--model` takes it.
        family: the architecture, by the name in the file.
        parameters: number of values in all tensors; 0 if unknown.
        size: of the weights' files, in bytes; 0 if unknown.
        quantization: of the matrices, such as "Q4_K_M" or "BF16".
        fim: the name of the FIM format; empty for a model that cannot fill in.
        problem: why midfill cannot run the model; empty if it can.
    """

    name: str
    source: Source
    path: Path
    family: str = ""
    parameters: int = 0
    size: int = 0
    quantization: str = ""
    fim: str = ""
    problem: str = ""


def describe(found: Found) -> LocalModel:
    """Read the metadata of a model; what is wrong with it becomes its problem."""
    model = LocalModel(found.name, found.source, found.path, problem=found.problem)
    if found.problem:
        return model
    try:
        if found.path.is_file():
            return _of_gguf(model)
        checkpoint = open_checkpoint(found.path, found.name)
        if checkpoint.path.is_file():  # a folder with a GGUF file
            return _of_gguf(replace(model, path=checkpoint.path))
        return _of_folder(model, checkpoint)
    except (MidfillError, OSError) as error:
        return replace(model, problem=str(error))
    except Exception as error:  # of one model: the others are listed all the same
        log.warning("%s cannot be described", found.path, exc_info=True)
        return replace(model, problem=f"{found.path} cannot be described: {error!r}")


def _of_gguf(model: LocalModel) -> LocalModel:
    header = read_gguf_header(model.path)
    tokens = header.metadata.get("tokenizer.ggml.tokens", ())
    described = replace(
        model,
        family=header.architecture,
        parameters=sum(tensor.values for tensor in header.tensors.values()),
        size=model.path.stat().st_size,
        quantization=_file_type(header),
        fim=_fim(tokens if isinstance(tokens, tuple) else (), f"{model.name} {header.metadata.get('general.name')}"),
    )
    try:
        parts = _parts(described, header)
    except MidfillError as error:
        return replace(described, problem=str(error))
    return replace(
        described,
        parameters=sum(tensor.values for part in parts for tensor in part.tensors.values()),
        size=sum(part.path.stat().st_size for part in parts),
    )


def _parts(model: LocalModel, header: GgufHeader) -> Sequence[GgufHeader]:
    """The headers of all parts of the model; BadModel if midfill cannot run it."""
    if not header.tensors and header.metadata.get("split.count", 1) in (0, 1):
        raise BadModel(f"{model.path} holds no tensors: it is a vocabulary alone")
    checkpoint = open_checkpoint(model.path, model.name)
    return checkpoint.headers if isinstance(checkpoint, GgufCheckpoint) else (header,)


def _of_folder(model: LocalModel, checkpoint: Checkpoint) -> LocalModel:
    files = checkpoint.weights()
    tensors = [tensor for file in files for tensor in file.tensors.values()]
    method = quantization_method(checkpoint.config)
    told = _within(checkpoint, "midfill").get("fim_format", AUTO)
    return replace(
        model,
        family=checkpoint.architecture.model_type,
        parameters=sum(tensor.values for tensor in tensors),
        size=sum(file.size for file in files),
        quantization=method or _most(tensors),
        fim=_fim(_added_tokens(checkpoint.folder / "tokenizer.json"), f"{model.name} {checkpoint.folder}", told),
        problem=unread(method) if method else "",
    )


def _within(checkpoint: Checkpoint, key: str) -> Mapping[str, Any]:
    """An object within the config; empty if there is none."""
    value = checkpoint.config.get(key)
    return value if isinstance(value, Mapping) else {}


def _added_tokens(path: Path) -> set[str]:
    try:
        return {token["content"] for token in json.loads(path.read_text(encoding="utf-8")).get("added_tokens", [])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadModel(f"{path} cannot be read as a tokenizer: {error!r}") from error


def _fim(tokens: Iterable[str], where: str, wanted: str = AUTO) -> str:
    """The name of the FIM format whose markers are among the tokens; empty if there is none."""
    try:
        return choose_format(wanted, frozenset(tokens), where).name
    except MidfillError:
        return ""


def _file_type(header: GgufHeader) -> str:
    """The quantization as llama.cpp names it, else the type of most values."""
    from gguf.constants import LlamaFileType

    names = {kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in LlamaFileType}
    number = header.metadata.get("general.file_type")
    if isinstance(number, int) and number in names:
        return names[number]
    return _most(header.tensors.values())


def _most(tensors: Iterable[StoredTensor]) -> str:
    """The type of most values; empty for no tensors."""
    sums: Counter[str] = Counter()
    for tensor in tensors:
        sums[tensor.type_name] += tensor.values
    return sums.most_common(1)[0][0] if sums else ""
