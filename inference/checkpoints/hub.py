"""Finds models of the Hugging Face hub in the local cache, or downloads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from inference.checkpoints.weights import find_weights
from protocol.errors import BadModel

ReportProgress = Callable[[str, float | None], None]  # current activity, and its share done (0..1) if known

TOKENIZER_FILES = ("config.json", "tokenizer.json")
WANTED_FILES = (*TOKENIZER_FILES, "model*.safetensors", "model.safetensors.index.json")

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(model: str) -> bool:
    """Whether `model` has the form OWNER/NAME."""
    return _HUB_NAME.fullmatch(model) is not None


def cached_snapshot(name: str) -> Path | None:
    """The folder of the model's files if the cache has all of them; uses no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(WANTED_FILES), local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    try:
        find_weights(folder)
    except BadModel:  # an interrupted download, which fetching completes
        return None
    return folder if all((folder / name).is_file() for name in ("config.json", "tokenizer.json")) else None


def fetch_tokenizer(name: str) -> Path:
    """As `fetch_snapshot`, without the weights."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(TOKENIZER_FILES), local_files_only=True))
        if (folder / "tokenizer.json").is_file():
            return folder
    except LocalEntryNotFoundError:
        pass
    return fetch_snapshot(name, files=TOKENIZER_FILES)


def fetch_snapshot(name: str, progress: ReportProgress | None = None, files: Sequence[str] = WANTED_FILES) -> Path:
    """Download the model's files that the cache lacks; returns their folder, or raises BadModel."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(files), tqdm_class=_bar_class(name, progress)))
    except GatedRepoError as error:
        raise BadModel(f"{name} requires you to accept its licence: do so at https://huggingface.co/{name}") from error
    except RepositoryNotFoundError as error:
        raise BadModel(f"the Hugging Face hub has no model {name!r}, or it is private") from error
    except (HfHubHTTPError, OSError) as error:
        raise BadModel(
            f"{name} is not in the local cache and could not be fetched: {error}. Connect to the network once,"
            " give a model's folder, or use the bundled model"
        ) from error


def _bar_class(name: str, progress: ReportProgress | None) -> Any:
    """A progress bar class that also reports bytes to `progress`; the hub library creates several per model."""
    from huggingface_hub.utils.tqdm import tqdm

    class ReportingBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._counts_bytes = kwargs.get("unit") == "B"
            self._done = kwargs.get("initial", 0)
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            self._done += n or 0  # an undrawn bar does not count
            if progress is not None and self._counts_bytes and self.total:
                progress(f"fetching {name}", min(1.0, self._done / self.total))
            return drawn

    return ReportingBar
