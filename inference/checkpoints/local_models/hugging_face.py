"""The Hugging Face cache: snapshots of repositories with safetensors or GGUF files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from inference.checkpoints.hub_names import is_complete, quantizations
from inference.checkpoints.local_models.found import Found

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo


def folders(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The folder of the cache, as the hub's library chooses it from the environment."""
    if named := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return (Path(named).expanduser(),)
    caches = environment.get("XDG_CACHE_HOME")
    root = environment.get("HF_HOME") or (Path(caches) if caches else home / ".cache") / "huggingface"
    return (Path(root).expanduser() / "hub",)


def find(folder: Path) -> Iterator[Found]:
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
        yield Found(str(folder), "Hugging Face", folder, str(warning))


def _revision(repository: CachedRepoInfo) -> CachedRevisionInfo | None:
    """The revision that the hub's library would use: that of the branch main, else the newest."""
    revisions = sorted(repository.revisions, key=lambda revision: ("main" in revision.refs, revision.last_modified))
    return revisions[-1] if revisions else None


def _in_snapshot(name: str, revision: CachedRevisionInfo) -> Iterator[Found]:
    files = sorted(file.file_path for file in revision.files)
    if any(file.suffix == ".safetensors" for file in files) and revision.snapshot_path / "config.json" in files:
        yield Found(name, "Hugging Face", revision.snapshot_path)
    snapshot = revision.snapshot_path
    for quantization, parts in quantizations(file.relative_to(snapshot).as_posix() for file in files).items():
        if is_complete(parts):
            yield Found(f"{name}:{quantization}", "Hugging Face", snapshot / parts[0])
