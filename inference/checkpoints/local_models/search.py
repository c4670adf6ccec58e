"""Searches the folders of all programs for models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.checkpoints.local_models import hugging_face, llama_cpp, lm_studio, ollama
from inference.checkpoints.local_models.description import LocalModel, describe
from inference.checkpoints.local_models.found import Found

_PROGRAMS = (ollama, lm_studio, llama_cpp, hugging_face)


def search(environment: Mapping[str, str], home: Path) -> tuple[LocalModel, ...]:
    """Every model of midfill and of the programs, in the order of the programs; reads their metadata alone."""
    return tuple(map(describe, _found(environment, home)))


def _found(environment: Mapping[str, str], home: Path) -> Iterator[Found]:
    for name, folder in BUNDLED_FOLDERS.items():
        yield Found(name, "midfill", folder)
    for program in _PROGRAMS:
        for folder in program.folders(environment, home):
            yield from program.find(folder)
