"""Models of other programs: the folders where Hugging Face, llama.cpp, LM Studio and Ollama keep theirs, and their
names.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from inference.checkpoints.hub import is_complete, is_first_part, quantizations
from protocol.errors import BadModel

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo


Source = Literal["midfill", "Ollama", "LM Studio", "llama.cpp", "Hugging Face", "Hugging Face hub"]


@dataclass(frozen=True, slots=True)
class FoundModel:
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


def hugging_face_folders() -> tuple[Path, ...]:
    """The folder of the cache, into which models are downloaded too."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return (Path(HF_HUB_CACHE),)


def hugging_face_models(folder: Path) -> Iterator[FoundModel]:
    """Every model repository with safetensors by its hub name, and every GGUF file as OWNER/NAME:QUANTIZATION."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = scan_cache_dir(folder)
    except (CacheNotFound, OSError, ValueError):  # there is no cache, or it is a file
        return
    for repository in sorted(cache.repos, key=lambda repository: repository.repo_id):
        revision = _revision(repository)
        if repository.repo_type == "model" and revision is not None:
            yield from _in_snapshot(repository.repo_id, revision)
    for warning in cache.warnings:
        yield FoundModel(str(folder), "Hugging Face", folder, str(warning))


def _revision(repository: CachedRepoInfo) -> CachedRevisionInfo | None:
    """The revision that the hub's library would use: that of the branch main, else the newest."""
    revisions = sorted(repository.revisions, key=lambda revision: ("main" in revision.refs, revision.last_modified))
    return revisions[-1] if revisions else None


def _in_snapshot(name: str, revision: CachedRevisionInfo) -> Iterator[FoundModel]:
    files = sorted(file.file_path for file in revision.files)
    if any(file.suffix == ".safetensors" for file in files) and revision.snapshot_path / "config.json" in files:
        yield FoundModel(name, "Hugging Face", revision.snapshot_path)
    snapshot = revision.snapshot_path
    for quantization, parts in quantizations(file.relative_to(snapshot).as_posix() for file in files).items():
        if is_complete(parts):
            yield FoundModel(f"{name}:{quantization}", "Hugging Face", snapshot / parts[0])


def llama_cpp_folders() -> tuple[Path, ...]:
    """The folder of the cache, as llama.cpp chooses it; empty where the system names none."""
    if named := os.environ.get("LLAMA_CACHE"):
        return (Path(named),)
    if sys.platform == "darwin":
        return (Path.home() / "Library" / "Caches" / "llama.cpp",)
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) / "llama.cpp",) if local else ()
    return (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llama.cpp",)


def lm_studio_folders() -> tuple[Path, ...]:
    """The folders that may hold LM Studio's models, those of its older versions last."""
    return Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"


def gguf_models(folder: Path, source: Source) -> Iterator[FoundModel]:
    """Every GGUF file, by its path."""
    for file in sorted(folder.rglob("*.gguf")):
        if is_first_part(file):
            yield FoundModel(str(file), source, file)


OLLAMA_PREFIX = "ollama:"
MODEL_LAYER = "application/vnd.ollama.image.model"

_REGISTRY, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"(?!\.+$)[\w.-]+")  # no "..", which would lead out of the folder
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SERVICE_FOLDER = Path("/usr/share/ollama/.ollama/models")  # of the service that Ollama's installer sets up on Linux


def ollama_folders() -> tuple[Path, ...]:
    """The folders that may hold Ollama's models."""
    named = os.environ.get("OLLAMA_MODELS")
    return (Path(named),) if named else (Path.home() / ".ollama" / "models", _SERVICE_FOLDER)


def ollama_models(folder: Path) -> Iterator[FoundModel]:
    """Every model with a manifest."""
    manifests = folder / "manifests"
    for file in sorted(path for path in manifests.glob("*/*/*/*") if path.is_file()):
        name = OLLAMA_PREFIX + _short_name(*file.relative_to(manifests).parts)
        try:
            yield FoundModel(name, "Ollama", _model_blob(file, folder))
        except BadModel as error:
            yield FoundModel(name, "Ollama", file, str(error))


def locate_in_ollama(name: str, searched: tuple[Path, ...]) -> Path:
    """The GGUF file of `name`, such as "ollama:qwen2.5-coder:1.5b"; BadModel if Ollama has no such model here."""
    path, _, tag = name.removeprefix(OLLAMA_PREFIX).partition(":")
    parts = path.split("/")
    parts = [_REGISTRY, _NAMESPACE, *parts][-3:] if len(parts) == 1 else [_REGISTRY, *parts][-3:]
    parts.append(tag or _TAG)
    if len(path.split("/")) > 3 or not all(map(_PART.fullmatch, parts)):
        raise BadModel(f"{name!r} is not a name of Ollama's: write ollama:MODEL:TAG, as `ollama list` shows it")
    for folder in searched:
        manifest = folder.joinpath("manifests", *parts)
        if manifest.is_file():
            return _model_blob(manifest, folder)
    where = " or ".join(map(str, searched))
    raise BadModel(f"Ollama has no model {name.removeprefix(OLLAMA_PREFIX)!r} in {where}: run `ollama pull` or `midfill models`")


def _model_blob(manifest: Path, folder: Path) -> Path:
    """The blob with the weights that a manifest names; BadModel, naming the manifest, if there is none."""
    try:
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        digests = [str(layer["digest"]) for layer in layers if layer["mediaType"] == MODEL_LAYER]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadModel(f"{manifest} is not a manifest of Ollama's: {error!r}") from error
    if len(digests) != 1:
        raise BadModel(f"{manifest} names {len(digests)} files of weights in GGUF, and has to name one")
    if not _DIGEST.fullmatch(digests[0]):
        raise BadModel(f"{manifest} names the weights {digests[0]!r}, which is not a digest")
    blob = folder / "blobs" / digests[0].replace(":", "-")
    if not blob.is_file():
        raise BadModel(f"{blob} is missing, which {manifest} names: run `ollama pull` again")
    return blob


def _short_name(registry: str, namespace: str, model: str, tag: str) -> str:
    """The name as `ollama list` shows it."""
    if registry != _REGISTRY:
        return f"{registry}/{namespace}/{model}:{tag}"
    return f"{model}:{tag}" if namespace == _NAMESPACE else f"{namespace}/{model}:{tag}"


def path_of(model: str) -> Path | None:
    """The file of a model of Ollama's; None if the name has not its prefix.

    Raises BadModel, with a remedy, if Ollama has no such model.
    """
    if model.startswith("lmstudio:"):
        raise BadModel(f"{model!r}: name a model of LM Studio's by its file, as `midfill models` lists it")
    return locate_in_ollama(model, ollama_folders()) if model.startswith(OLLAMA_PREFIX) else None
