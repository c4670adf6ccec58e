"""Resolves the names that begin with a program's prefix, such as "ollama:qwen2.5-coder:1.5b", to files."""

from __future__ import annotations

import os
from pathlib import Path

from inference.checkpoints.local_models import lm_studio, ollama


def path_of(model: str) -> Path | None:
    """The file of a model that another program has here; None if the name has no program's prefix.

    Raises BadModel, with a remedy, if the program has no such model.
    """
    for program in (ollama, lm_studio):
        if model.startswith(program.PREFIX):
            found: Path = program.locate(model, program.folders(os.environ, Path.home()))
            return found
    return None
