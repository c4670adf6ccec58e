"""The format of the index of saved pages: one line with a checksum, one line of JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kv_store.page_tree import PAGE_TOKENS

FORMAT = "midfill kv index 1"
PAGE_NAME = re.compile(r"[0-9a-f]{8}\.safetensors")


@dataclass(frozen=True, slots=True)
class PageFile:
    """One saved page's file, as it was written."""

    name: str
    count: int
    """Tokens."""
    size: int
    """Bytes of the whole file."""
    sha256: str


@dataclass(frozen=True, slots=True)
class SavedPage:
    """One entry of the index."""

    token_ids: tuple[int, ...]
    parent: int
    """Which earlier entry it follows; -1 where it begins a prefix."""
    owners: dict[str, int]
    file: PageFile


def encode_index(fingerprint: str, pages: Sequence[SavedPage]) -> bytes:
    """The bytes of an index file. Parents stand before their children."""
    entries = [
        [page.token_ids, page.parent, page.owners, page.file.name, page.file.size, page.file.sha256] for page in pages
    ]
    body = json.dumps({"fingerprint": fingerprint, "pages": entries}, separators=(",", ":")).encode()
    head = json.dumps({"format": FORMAT, "sha256": hashlib.sha256(body).hexdigest()}).encode()
    return head + b"\n" + body


def decode_index(data: bytes, fingerprint: str) -> list[SavedPage]:
    """The entries. Raises ValueError, saying why, where they must not be used."""
    head, _, body = data.partition(b"\n")
    try:
        expected = json.loads(head)
    except ValueError as error:
        raise ValueError("not an index of saved pages") from error
    if not isinstance(expected, dict) or expected.get("format") != FORMAT:
        raise ValueError("an index of another version")
    if hashlib.sha256(body).hexdigest() != expected.get("sha256"):
        raise ValueError("truncated or corrupt: its checksum differs")
    index = json.loads(body)
    if index["fingerprint"] != fingerprint:
        raise ValueError("saved with other weights, tokenizer, dtype or RoPE settings")
    pages: list[SavedPage] = []
    for entry in index["pages"]:
        pages.append(_decode_page(entry, pages))
    return pages


def _decode_page(entry: list[Any], earlier: Sequence[SavedPage]) -> SavedPage:
    token_ids, parent, owners, name, size, sha256 = entry
    page = SavedPage(tuple(token_ids), parent, owners, PageFile(name, len(token_ids), size, sha256))
    follows_full_page = parent == -1 or (0 <= parent < len(earlier) and earlier[parent].file.count == PAGE_TOKENS)
    if not 0 < len(token_ids) <= PAGE_TOKENS or not follows_full_page:
        raise ValueError(f"entry {len(earlier)} does not fit the entries before it")
    if not PAGE_NAME.fullmatch(name):
        raise ValueError(f"entry {len(earlier)} names a file that is no page: {name!r}")
    return page
