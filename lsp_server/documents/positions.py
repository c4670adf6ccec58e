"""Positions and URIs: converts clients' code units to code points, and URIs to paths by their text alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote

from lsp_server.documents.documents import Document, Position, line_length
from protocol.errors import BadInput

_DRIVE = re.compile(r"/?([A-Za-z]:)")
_QUERY = re.compile(r"[?#]")


class UriPath(NamedTuple):
    """A URI's scheme in lower case, and its path, decoded: `/w/a b.py`, `c:/w/a.py`, `//server/a.py`, `Untitled-1`."""

    scheme: str
    path: str


def split_uri(uri: str) -> UriPath:
    """The scheme and the path; never raises, whatever an editor sends: a text without a scheme has the scheme ""."""
    scheme, colon, rest = uri.partition(":")
    if not colon:
        return UriPath("", uri)
    scheme, authority = scheme.lower(), ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if scheme != "file":
        # A file's URI has no query or fragment: what looks like one is a name that the editor did not encode.
        rest = _QUERY.split(rest, maxsplit=1)[0]
    path = unquote(rest, errors="surrogateescape")
    if drive := _DRIVE.match(path):
        return UriPath(scheme, drive[1].lower() + path[drive.end() :].replace("\\", "/"))
    if scheme == "file" and authority not in ("", "localhost"):
        path = f"//{authority}{path}"
    return UriPath(scheme, path)


def without_query(uri: str) -> str:
    """The URI up to its query or fragment; of a file's, what may be one."""
    return _QUERY.split(uri, maxsplit=1)[0]


def shown_path(uri: str, folders: Sequence[str]) -> str:
    """How a prompt names the document: its path in the innermost workspace folder, after its name if there are several.

    `folders` are URIs. A document outside of them goes by its file name alone, so its folders stay private.
    """
    path = split_uri(uri).path
    roots = (split_uri(folder).path.rstrip("/") for folder in folders)
    root = max((root for root in roots if path.startswith(root + "/")), key=len, default=None)
    if root is None:
        return path.rpartition("/")[2]
    relative = path[len(root) + 1 :]
    return f"{root.rpartition('/')[2]}/{relative}" if len(folders) > 1 else relative


_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")  # two code units each in UTF-16


class PositionEncoding(Enum):
    """The code units that a client counts columns in; the values are LSP's names."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


class ClientPosition(NamedTuple):
    """A position from the client: line and `character` from 0, in code units of the negotiated encoding."""

    line: int
    character: int


@dataclass(frozen=True, slots=True)
class PositionCodec:
    """Converts positions between a client and its documents.

    In `x="😋"` the closing quotation mark has character 7 in UTF-8, 5 in UTF-16 and 4 in UTF-32.
    """

    encoding: PositionEncoding

    def decode(self, document: Document, position: ClientPosition) -> Position:
        """The position in the document.

        A character beyond the line's end means its end, as LSP specifies. A line beyond the document means the
        document's end: clients name it for the end of a text without a final line end, as Neovim does when its last
        line is deleted. BadInput names a negative number, and a character in the middle of a code point: rounding it
        would let document and mirror drift apart.
        """
        if min(position) < 0:
            raise BadInput(f"line {position.line}, character {position.character} of {document.uri} is negative")
        if position.line >= len(document.lines):
            return document.end
        line = document.lines[position.line]
        column = self._column(line, position.character)
        if column is None:
            raise BadInput(
                f"character {position.character} of line {position.line} of {document.uri} "
                f"lies inside a code point ({self.encoding.value})"
            )
        return Position(position.line, min(column, line_length(line)))

    def encode(self, document: Document, position: Position) -> ClientPosition:
        """The position in the client's code units; it must lie in the document."""
        head = document.lines[position.line][: position.column]
        return ClientPosition(position.line, self.units(head))

    def units(self, text: str) -> int:
        """The length of `text` in code units."""
        if self.encoding is PositionEncoding.UTF32 or text.isascii():
            return len(text)
        if self.encoding is PositionEncoding.UTF8:
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text.encode("utf-16-le", "surrogatepass")) // 2

    def code_points(self, text: str, units: int) -> int:
        """How many code points the first `units` code units of `text` span; a code point they end inside counts."""
        spanned = 0
        for length, character in enumerate(text):
            if spanned >= units:
                return length
            spanned += self.units(character)
        return len(text)

    def _column(self, line: str, units: int) -> int | None:
        """The code points that `units` code units of the line span; None where they end inside one."""
        if self.encoding is PositionEncoding.UTF32 or line.isascii():
            return units
        if self.encoding is PositionEncoding.UTF8:
            return _column_from_utf8(line, units)
        return _column_from_utf16(line, units)


def _column_from_utf8(line: str, units: int) -> int | None:
    encoded = line.encode("utf-8", "surrogatepass")
    if units < len(encoded) and encoded[units] & 0xC0 == 0x80:  # a continuation byte
        return None
    return len(encoded[:units].decode("utf-8", "surrogatepass"))


def _column_from_utf16(line: str, units: int) -> int | None:
    pairs = 0
    for match in _BEYOND_BMP.finditer(line):
        begins = match.start() + pairs  # in code units
        if begins >= units:
            break
        if begins + 1 == units:
            return None
        pairs += 1
    return units - pairs
