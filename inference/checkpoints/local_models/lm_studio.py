"""LM Studio's models: GGUF files in folders named PUBLISHER/MODEL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from inference.checkpoints.hub_names import is_first_part
from inference.checkpoints.local_models.found import Found
from protocol.errors import BadModel

PREFIX = "lmstudio:"


def folders(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:  # noqa: ARG001 - it reads no variable
    """The folders that may hold LM Studio's models, those of its older versions last."""
    return home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"


def find(folder: Path) -> Iterator[Found]:
    """Every GGUF file."""
    for file in sorted(folder.glob("*/*/*.gguf")):
        if is_first_part(file):
            yield Found(PREFIX + file.relative_to(folder).as_posix(), "LM Studio", file)


def locate(name: str, searched: tuple[Path, ...]) -> Path:
    """The file of `name`, "lmstudio:PUBLISHER/MODEL/FILE.gguf"; BadModel if LM Studio has no such file here."""
    parts = name.removeprefix(PREFIX).split("/")
    if len(parts) != 3 or {"", ".", ".."} & set(parts) or "\\" in name:
        raise BadModel(f"{name!r} is not a name of LM Studio's: write lmstudio:PUBLISHER/MODEL/FILE.gguf")
    for folder in searched:
        file = folder.joinpath(*parts)
        if file.is_file():
            return file
    where = " or ".join(map(str, searched))
    raise BadModel(f"LM Studio has no file {'/'.join(parts)!r} in {where}: `midfill models` lists what is there")
