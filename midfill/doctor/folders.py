"""The folders in which midfill keeps files on this machine: caches, state, logs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from lsp_server.usage.database import statistics_file
from midfill.doctor.findings import Section
from midfill.installation import ENGINE, missing
from protocol.errors import BadInput
from protocol.rendezvous import cache_folder, runtime_folder
from protocol.sizes import megabytes


def folders() -> Section:
    """Each folder or file with its size; docs/troubleshooting.md says how to remove them."""
    facts = [("KV cache", _sized(cache_folder())), ("statistics", str(statistics_file()))]
    if not missing(ENGINE):
        from huggingface_hub.constants import HF_HUB_CACHE

        facts.append(("downloaded models", f"{HF_HUB_CACHE} (shared with all programs that use the Hugging Face hub)"))
    try:
        facts.append(("cores and logs", f"{runtime_folder()} (token, addresses, core-*.log)"))
    except BadInput:
        facts.append(("cores and logs", "not usable: see core"))
    return Section("files", (), minor=tuple(facts))


def _sized(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}, not created yet"
    size = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a running core has just removed it
            size += file.stat().st_size if file.is_file() else 0
    return f"{folder}, {megabytes(size)}"
