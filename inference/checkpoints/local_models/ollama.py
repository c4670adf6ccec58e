"""Ollama's models: manifests that name blobs, among them one GGUF file per model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from inference.checkpoints.local_models.found import Found
from protocol.errors import BadModel

PREFIX = "ollama:"
MODEL_LAYER = "application/vnd.ollama.image.model"

_REGISTRY, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"(?!\.+$)[\w.-]+")  # no "..", which would lead out of the folder
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SERVICE_FOLDER = Path("/usr/share/ollama/.ollama/models")  # of the service that Ollama's installer sets up on Linux


def folders(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The folders that may hold Ollama's models."""
    named = environment.get("OLLAMA_MODELS")
    return (Path(named),) if named else (home / ".ollama" / "models", _SERVICE_FOLDER)


def find(folder: Path) -> Iterator[Found]:
    """Every model with a manifest."""
    manifests = folder / "manifests"
    for file in sorted(path for path in manifests.glob("*/*/*/*") if path.is_file()):
        name = PREFIX + _short_name(*file.relative_to(manifests).parts)
        try:
            yield Found(name, "Ollama", _model_blob(file, folder))
        except BadModel as error:
            yield Found(name, "Ollama", file, str(error))


def locate(name: str, searched: tuple[Path, ...]) -> Path:
    """The GGUF file of `name`, such as "ollama:qwen2.5-coder:1.5b"; BadModel if Ollama has no such model here."""
    path, _, tag = name.removeprefix(PREFIX).partition(":")
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
    raise BadModel(
        f"Ollama has no model {name.removeprefix(PREFIX)!r} in {where}: run `ollama pull` or `midfill models`"
    )


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
