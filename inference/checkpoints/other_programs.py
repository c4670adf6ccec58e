"""Models of other programs: the folders where Hugging Face, llama.cpp, LM Studio and Ollama keep theirs, and their
names.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
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


def hugging_face_folders(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The folder of the cache, as the hub's library chooses it from the environment."""
    if named := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return (Path(named).expanduser(),)
    caches = environment.get("XDG_CACHE_HOME")
    root = environment.get("HF_HOME") or (Path(caches) if caches else home / ".cache") / "huggingface"
    return (Path(root).expanduser() / "hub",)


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


def llama_cpp_folders(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
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


def llama_cpp_models(folder: Path) -> Iterator[FoundModel]:
    """Every GGUF file."""
    for file in sorted(folder.rglob("*.gguf")):
        if is_first_part(file):
            yield FoundModel(str(file), "llama.cpp", file)


LM_STUDIO_PREFIX = "lmstudio:"


def lm_studio_folders(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:  # noqa: ARG001 - it reads no variable
    """The folders that may hold LM Studio's models, those of its older versions last."""
    return home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"


def lm_studio_models(folder: Path) -> Iterator[FoundModel]:
    """Every GGUF file."""
    for file in sorted(folder.glob("*/*/*.gguf")):
        if is_first_part(file):
            yield FoundModel(LM_STUDIO_PREFIX + file.relative_to(folder).as_posix(), "LM Studio", file)


def locate_in_lm_studio(name: str, searched: tuple[Path, ...]) -> Path:
    """The file of `name`, "lmstudio:PUBLISHER/MODEL/FILE.gguf"; BadModel if LM Studio has no such file here."""
    parts = name.removeprefix(LM_STUDIO_PREFIX).split("/")
    if len(parts) != 3 or {"", ".", ".."} & set(parts) or "\\" in name:
        raise BadModel(f"{name!r} is not a name of LM Studio's: write lmstudio:PUBLISHER/MODEL/FILE.gguf")
    for folder in searched:
        file = folder.joinpath(*parts)
        if file.is_file():
            return file
    where = " or ".join(map(str, searched))
    raise BadModel(f"LM Studio has no file {'/'.join(parts)!r} in {where}: `midfill models` lists what is there")


OLLAMA_PREFIX = "ollama:"
MODEL_LAYER = "application/vnd.ollama.image.model"

_REGISTRY, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"(?!\.+$)[\w.-]+")  # no "..", which would lead out of the folder
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SERVICE_FOLDER = Path("/usr/share/ollama/.ollama/models")  # of the service that Ollama's installer sets up on Linux


def ollama_folders(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The folders that may hold Ollama's models."""
    named = environment.get("OLLAMA_MODELS")
    return (Path(named),) if named else (home / ".ollama" / "models", _SERVICE_FOLDER)


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
    """The file of a model that another program has here; None if the name has no program's prefix.

    Raises BadModel, with a remedy, if the program has no such model.
    """
    if model.startswith(OLLAMA_PREFIX):
        return locate_in_ollama(model, ollama_folders(os.environ, Path.home()))
    if model.startswith(LM_STUDIO_PREFIX):
        return locate_in_lm_studio(model, lm_studio_folders(os.environ, Path.home()))
    return None
