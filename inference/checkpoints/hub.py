"""Finds models of the Hugging Face hub in the local cache: folders with safetensors, and single GGUF files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from inference.checkpoints.hub_download import download
from inference.checkpoints.hub_names import HubName, hub_name, is_complete, one_model, quantizations
from inference.checkpoints.weights import find_weights
from protocol.errors import BadModel

ReportProgress = Callable[[str, float | None], None]  # current activity, and its share done (0..1) if known

TOKENIZER_FILES = ("config.json", "tokenizer.json")
WANTED_FILES = (*TOKENIZER_FILES, "model*.safetensors", "model.safetensors.index.json")


def is_hub_name(model: str) -> bool:
    """Whether `model` has the form OWNER/NAME or OWNER/NAME:QUANTIZATION."""
    return hub_name(model) is not None


def cached_snapshot(name: str) -> Path | None:
    """The folder of the model's files, or its GGUF file, if the cache has all of it; uses no network.

    BadModel if the cache has several quantizations of it, and `name` has none.
    """
    wanted = hub_name(name)
    if wanted is None:
        return None
    folder = _cached_folder(wanted.repository)
    if folder is None:
        return None
    if not wanted.quantization and all((folder / file).is_file() for file in TOKENIZER_FILES):
        try:
            find_weights(folder)
        except BadModel:  # an interrupted download, which fetching completes
            return None
        return folder
    return _cached_gguf(folder, wanted)


def fetch_tokenizer(name: str) -> Path:
    """As `fetch_snapshot`, without the weights; a GGUF file, which has its own tokenizer, if the cache has it."""
    wanted = hub_name(name)
    folder = _cached_folder(wanted.repository) if wanted is not None else None
    if folder is not None and (folder / "tokenizer.json").is_file():
        return folder
    if (snapshot := cached_snapshot(name)) is not None:
        return snapshot
    return fetch_snapshot(name if wanted is None else wanted.repository, files=TOKENIZER_FILES)


def fetch_snapshot(name: str, progress: ReportProgress | None = None, files: Sequence[str] = WANTED_FILES) -> Path:
    """Download the model's files that the cache lacks; returns their folder or the GGUF file, or raises BadModel."""

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(f"fetching {name}", done / total if total else None)

    return download(name, report, files)


def _cached_folder(repository: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        # Of what the pattern names, which is nothing, no file is missing.
        return Path(snapshot_download(repository, allow_patterns=["none/"], local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _cached_gguf(folder: Path, wanted: HubName) -> Path | None:
    found = quantizations(path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf"))
    whole = {name: files for name, files in found.items() if is_complete(files)}
    if not whole or (wanted.quantization and wanted.quantization not in whole):
        return None
    return folder / one_model(whole, wanted, lambda path: (folder / path).stat().st_size)[0]
