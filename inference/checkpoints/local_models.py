"""The catalogue of models: those on this machine, described by their metadata, and a short list to download."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from inference.checkpoints import other_programs
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS, Checkpoint, noted, open_checkpoint, quantization_method, unread
from inference.checkpoints.gguf.file import read_headers
from inference.checkpoints.gguf.metadata import GgufHeader, read_gguf_header
from inference.checkpoints.gguf.tokenizer import tokenizer_definition
from inference.checkpoints.other_programs import FoundModel, Source
from inference.checkpoints.weights import StoredTensor, find_weights
from inference.text.fim import AUTO, choose_format
from inference.text.tokenization import added_tokens, read_definition
from protocol.errors import MidfillError, bad_model


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Attributes:
    name: as `--model` and `midfill models download` take it.
    licence: as the model's card names it.
    size: about the bytes to download, which are also about those in memory, in the types of the files.
    fim: the name of the FIM format.
    """

    name: str
    licence: str
    size: int
    fim: str


# Names, licences and sizes as the models' cards have them; `midfill models download` shows the hub's before it begins.
KNOWN_MODELS = (
    KnownModel("ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF", "apache-2.0", 531_000_000, "qwen-coder"),
    KnownModel("ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF", "apache-2.0", 1_650_000_000, "qwen-coder"),
    KnownModel("ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF", "apache-2.0", 8_100_000_000, "qwen-coder"),
    KnownModel("Qwen/Qwen2.5-Coder-0.5B", "apache-2.0", 988_000_000, "qwen-coder"),
    KnownModel("Qwen/Qwen2.5-Coder-1.5B", "apache-2.0", 3_090_000_000, "qwen-coder"),
    KnownModel("Qwen/Qwen2.5-Coder-7B", "apache-2.0", 15_200_000_000, "qwen-coder"),
    KnownModel("deepseek-ai/deepseek-coder-1.3b-base", "deepseek", 2_690_000_000, "deepseek-coder"),
    KnownModel("JetBrains/Mellum-4b-base", "apache-2.0", 8_040_000_000, "mellum"),
    KnownModel("bigcode/starcoder2-3b", "bigcode-openrail-m", 12_100_000_000, "starcoder2"),
)


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


def describe(found: FoundModel) -> LocalModel:
    """Read the metadata of a model; what is wrong with it becomes its problem."""
    model = LocalModel(found.name, found.source, found.path, problem=found.problem)
    if found.problem:
        return model
    try:
        with bad_model(f"{found.path} cannot be described"):
            if found.path.is_file():
                return _of_gguf(model)
            checkpoint = open_checkpoint(found.path, found.name)
            if checkpoint.path.is_file():  # a folder with a GGUF file
                return _of_gguf(replace(model, path=checkpoint.path))
            return _of_folder(model, checkpoint)
    except MidfillError as error:
        return replace(model, problem=str(error))


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
        parts = read_headers(model.path)
        open_checkpoint(model.path, model.name).weights()
        if header.metadata.get("tokenizer.ggml.model") != "llama":  # whose conversion takes seconds
            tokenizer_definition(header)
    except MidfillError as error:
        return replace(described, problem=str(error))
    return replace(
        described,
        parameters=sum(tensor.values for part in parts for tensor in part.tensors.values()),
        size=sum(part.path.stat().st_size for part in parts),
    )


def _of_folder(model: LocalModel, checkpoint: Checkpoint) -> LocalModel:
    files = find_weights(checkpoint.folder)
    tensors = [tensor for file in files for tensor in file.tensors.values()]
    method = quantization_method(checkpoint.config)
    path = checkpoint.folder / "tokenizer.json"
    tokens = added_tokens(read_definition(path), str(path))
    fim_format = noted(checkpoint.config).get("fim_format") or AUTO
    return replace(
        model,
        family=checkpoint.architecture.model_type,
        parameters=sum(tensor.values for tensor in tensors),
        size=sum(file.size for file in files),
        quantization=method or _most(tensors),
        fim=_fim(tokens, f"{model.name} {checkpoint.folder}", fim_format),
        problem=unread(method) if method else "",
    )


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


_PROGRAMS = (
    (other_programs.ollama_folders, other_programs.ollama_models),
    (other_programs.lm_studio_folders, partial(other_programs.gguf_models, source="LM Studio")),
    (other_programs.llama_cpp_folders, partial(other_programs.gguf_models, source="llama.cpp")),
    (other_programs.hugging_face_folders, other_programs.hugging_face_models),
)


def search() -> tuple[LocalModel, ...]:
    """Every model of midfill and of the programs, in the order of the programs; reads their metadata alone."""
    return tuple(map(describe, _found()))


def _found() -> Iterator[FoundModel]:
    for name, folder in BUNDLED_FOLDERS.items():
        yield FoundModel(name, "midfill", folder)
    for folders, find in _PROGRAMS:
        for folder in folders():
            yield from find(folder)
