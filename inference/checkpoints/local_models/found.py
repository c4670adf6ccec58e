"""What a program's folder names: the name of a model, and the file or folder with its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Source = Literal["midfill", "Ollama", "LM Studio", "llama.cpp", "Hugging Face", "Hugging Face hub"]


@dataclass(frozen=True, slots=True)
class Found:
    """A model that a program has on this machine; nothing of it has been read yet.

    Attributes:
        name: as `--model` takes it.
        path: a GGUF file, or a folder with safetensors.
        problem: why the program's own files do not lead to usable weights; empty if they do.
    """

    name: str
    source: Source
    path: Path
    problem: str = ""
