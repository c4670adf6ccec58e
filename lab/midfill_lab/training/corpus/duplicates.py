"""Recognizes files whose content was already collected, completely or mostly."""

import hashlib

MAX_SEEN_SHARE = 0.6
MIN_LINE_CHARS = 20


class DuplicateFilter:
    """Remembers every collected file by its content and by its longer lines.

    A cheap substitute for MinHash: a file is a near duplicate if more than `MAX_SEEN_SHARE` of its distinct lines of at
    least `MIN_LINE_CHARS` characters are in files collected before. This finds other versions of a file, and files
    assembled from several.
    """

    def __init__(self) -> None:
        self._contents: set[bytes] = set()
        self._lines: set[int] = set()

    def reason_to_drop(self, text: str) -> str | None:
        """The kind of duplicate that `text` is of earlier texts; None if it is new."""
        if _digest(text) in self._contents:
            return "duplicate"
        lines = _line_hashes(text)
        if lines and len(lines & self._lines) > MAX_SEEN_SHARE * len(lines):
            return "near duplicate"
        return None

    def add(self, text: str) -> None:
        self._contents.add(_digest(text))
        self._lines |= _line_hashes(text)


def _digest(text: str) -> bytes:
    return hashlib.blake2b("\n".join(map(str.rstrip, text.splitlines())).encode(), digest_size=16).digest()


def _line_hashes(text: str) -> set[int]:
    stripped = {line.strip() for line in text.splitlines()}
    # A stable hash, not hash(): which files are dropped must not depend on PYTHONHASHSEED.
    return {
        int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest(), "little")
        for line in stripped
        if len(line) >= MIN_LINE_CHARS
    }
