"""llama.cpp's cache: GGUF files that its programs downloaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from inference.checkpoints.hub_names import is_first_part
from inference.checkpoints.local_models.found import Found


def folders(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The folder of the cache; empty where the system names none."""
    if named := environment.get("LLAMA_CACHE"):
        return (Path(named),)
    if sys.platform == "darwin":
        return (home / "Library" / "Caches" / "llama.cpp",)
    if sys.platform == "win32":
        local = environment.get("LOCALAPPDATA")
        return (Path(local) / "llama.cpp",) if local else ()
    caches = environment.get("XDG_CACHE_HOME")
    return ((Path(caches) if caches else home / ".cache") / "llama.cpp",)


def find(folder: Path) -> Iterator[Found]:
    """Every GGUF file."""
    for file in sorted(folder.rglob("*.gguf")):
        if is_first_part(file):
            yield Found(str(file), "llama.cpp", file)
