"""Reads names of models on the Hugging Face hub, and groups a repository's GGUF files by their quantization."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath

from protocol.errors import BadModel
from protocol.sizes import megabytes

_PART = r"[A-Za-z0-9][\w.-]*"
_NAME = re.compile(rf"(?:(?:https://)?(?:hf\.co|huggingface\.co)/)?({_PART}/{_PART})(?::({_PART}))?")
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")
_PROJECTOR = "mmproj"  # llama.cpp's name for the part of a model that reads images
# As llama.cpp and the tools that quantize for it name files: model-Q4_K_M.gguf, model.i1-IQ4_XS.gguf, model-f16.gguf.
_QUANTIZATION = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|F16|FP16|F32))$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository, and the quantization of one of its GGUF files in upper case; empty if none is named."""

    repository: str
    quantization: str = ""

    def __str__(self) -> str:
        return f"{self.repository}:{self.quantization}" if self.quantization else self.repository


class SeveralQuantizations(BadModel):
    """A name without a quantization, of a repository that has several; `sizes` are their bytes by their names."""

    def __init__(self, repository: str, sizes: Mapping[str, int]) -> None:
        self.sizes = {f"{repository}:{quantization}": size for quantization, size in sizes.items()}
        named = ", ".join(f"{name} ({megabytes(size)})" for name, size in self.sizes.items())
        super().__init__(f"{repository} has several quantizations: choose one of {named}")


def hub_name(model: str) -> HubName | None:
    """OWNER/NAME or OWNER/NAME:QUANTIZATION, also behind hf.co/; None for anything else."""
    match = _NAME.fullmatch(model)
    return None if match is None else HubName(match.group(1), (match.group(2) or "").upper())


def quantizations(paths: Iterable[str]) -> dict[str, list[str]]:
    """The GGUF files of models by quantization, in order; several are the parts of one. Vision projectors are none.

    Of several models of one quantization, such as a file that is there both whole and in parts, it is the first that
    is complete.
    """
    models: dict[str, dict[tuple[str, str], list[str]]] = {}
    for path in sorted(paths):
        file = PurePosixPath(path)
        if file.suffix == ".gguf" and _PROJECTOR not in file.name.lower():
            stem, split = _SPLIT.sub("", file.stem), _SPLIT.search(file.stem)
            match = _QUANTIZATION.search(stem)
            same = models.setdefault((match.group(1) if match else stem).upper(), {})
            same.setdefault((str(file.with_name(stem)), split.group(2) if split else ""), []).append(path)
    return {
        quantization: next(filter(is_complete, same.values()), next(iter(same.values())))
        for quantization, same in models.items()
    }


def is_first_part(file: PurePath) -> bool:
    """Whether a GGUF file holds a model, or the first part of one: not a later part, and not a vision projector."""
    match = _SPLIT.search(file.stem)
    return (match is None or int(match.group(1)) == 1) and _PROJECTOR not in file.name.lower()


def is_complete(files: Sequence[str]) -> bool:
    """Whether these are all parts of a GGUF file."""
    match = _SPLIT.search(PurePosixPath(files[0]).stem)
    return len(files) == (int(match.group(2)) if match else 1)


def one_model(found: Mapping[str, list[str]], wanted: HubName, size: Callable[[str], int]) -> list[str]:
    """The files of the wanted quantization, or of the only one; `size` gives a file's bytes.

    BadModel, with those that there are, if it is none of them; SeveralQuantizations if none is named.
    """
    if wanted.quantization in found:
        return found[wanted.quantization]
    if wanted.quantization or not found:
        here = ", ".join(f"{wanted.repository}:{name}" for name in found) or "it has neither safetensors nor GGUF files"
        raise BadModel(f"{wanted} is not on the hub: {here}")
    if len(found) > 1:
        raise SeveralQuantizations(wanted.repository, {name: sum(map(size, paths)) for name, paths in found.items()})
    return next(iter(found.values()))
