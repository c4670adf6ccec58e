"""From URIs to paths.

Positions of clients, in all three encodings, to and from code points.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.documents import Document, Position
from lsp_server.documents.positions import ClientPosition, PositionCodec, PositionEncoding, shown_path, split_uri
from protocol.errors import BadInput


@pytest.mark.parametrize(
    ("uri", "scheme", "path"),
    [
        ("file:///w/a.py", "file", "/w/a.py"),
        ("FILE:///w/a%20b/%C3%A9.py", "file", "/w/a b/é.py"),
        ("file://localhost/w/a.py", "file", "/w/a.py"),
        ("file:/w/a.py", "file", "/w/a.py"),
        ("file:///w/a?b#c.py", "file", "/w/a?b#c.py"),
        ("file:///c%3A/w/a.py", "file", "c:/w/a.py"),
        ("file:///C:/w/a.py", "file", "c:/w/a.py"),
        ("file:///C:%5Cw%5Ca.py", "file", "c:/w/a.py"),
        ("file://server/share/a.py", "file", "//server/share/a.py"),
        ("file:///w/%FF.py", "file", "/w/\udcff.py"),
        ("file://", "file", ""),
        ("untitled:Untitled-1", "untitled", "Untitled-1"),
        ("untitled:/w/new.py", "untitled", "/w/new.py"),
        ("vscode-notebook-cell:/w/n.ipynb#ch1", "vscode-notebook-cell", "/w/n.ipynb"),
        ("git:/w/a.py?%7B%22ref%22%3A%22%22%7D", "git", "/w/a.py"),
        ("inmemory://model/1", "inmemory", "/1"),
        ("/w/a.py", "", "/w/a.py"),
        ("", "", ""),
    ],
)
def test_a_uri_is_split(uri: str, scheme: str, path: str) -> None:
    assert split_uri(uri) == (scheme, path)


@given(st.text("aZ:/\\%25F?#[]@ \0é\ud800"))
def test_any_text_is_split(text: str) -> None:
    split_uri(text)
    split_uri("file://" + text)


@pytest.mark.parametrize(
    ("uri", "folders", "shown"),
    [
        ("file:///w/src/a.py", ["file:///w"], "src/a.py"),
        ("file:///w/src/a.py", ["file:///w/"], "src/a.py"),
        ("file:///w/src/a.py", ["file:///w", "file:///w/src"], "src/a.py"),
        ("file:///w/lib/a.py", ["file:///w", "file:///v"], "w/lib/a.py"),
        ("file:///elsewhere/a.py", ["file:///w"], "a.py"),
        ("file:///wider/a.py", ["file:///w"], "a.py"),
        ("file:///c%3A/w/a.py", ["file:///C:/w"], "a.py"),
        ("untitled:Untitled-1", ["file:///w"], "Untitled-1"),
    ],
)
def test_a_path_is_shown_as_seen_from_the_workspace(uri: str, folders: list[str], shown: str) -> None:
    assert shown_path(uri, folders) == shown


UTF8, UTF16, UTF32 = PositionEncoding.UTF8, PositionEncoding.UTF16, PositionEncoding.UTF32
WIDTH = {
    UTF8: lambda character: len(character.encode("utf-8")),
    UTF16: lambda character: len(character.encode("utf-16-le")) // 2,
    UTF32: lambda character: 1,
}
# Of every width, and what other editors take for line ends.
CHARACTERS = st.sampled_from("ab\té\u0301ñ…\u2028\f\u00a0한😋👩\u200d💻\n\r") | st.characters(exclude_categories=["Cs"])


def document(text: str) -> Document:
    return Document.from_text("file:///a", "text", 1, text)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_column_beyond_the_line_means_its_end(end: str) -> None:
    text = document(f"ab{end}cd")
    for encoding in PositionEncoding:
        assert PositionCodec(encoding).decode(text, ClientPosition(0, 99)) == Position(0, 2)
        assert PositionCodec(encoding).decode(text, ClientPosition(1, 99)) == Position(1, 2)


@given(text=st.text(CHARACTERS), beyond=st.integers(0, 99_999), character=st.integers(0, 9))
def test_a_line_beyond_the_document_means_its_end(text: str, beyond: int, character: int) -> None:
    mirror = document(text)
    for encoding in PositionEncoding:
        place = PositionCodec(encoding).decode(mirror, ClientPosition(len(mirror.lines) + beyond, character))
        assert place == mirror.end
        assert mirror.slice(Position(0, 0), place) == text


@pytest.mark.parametrize(("line", "character"), [(-1, 0), (0, -1), (9, -1), (-1, 9)])
def test_a_negative_place_is_named(line: int, character: int) -> None:
    with pytest.raises(BadInput, match=rf"line {line}, character {character} of file:///a is negative"):
        PositionCodec(UTF16).decode(document("a"), ClientPosition(line, character))


@pytest.mark.parametrize(("encoding", "inside"), [(UTF16, [1]), (UTF8, [1, 2, 3])])
def test_a_place_inside_a_code_point_is_refused(encoding: PositionEncoding, inside: list[int]) -> None:
    for character in inside:
        with pytest.raises(BadInput, match=rf"character {character} of line 0 .* inside a code point"):
            PositionCodec(encoding).decode(document("😋"), ClientPosition(0, character))


@given(text=st.text(CHARACTERS), data=st.data(), encoding=st.sampled_from(PositionEncoding))
def test_every_place_survives_the_round_trip(text: str, data: st.DataObject, encoding: PositionEncoding) -> None:
    mirror, codec = document(text), PositionCodec(encoding)
    line = data.draw(st.integers(0, len(mirror.lines) - 1))
    content = mirror.lines[line].rstrip("\r\n")
    column = data.draw(st.integers(0, len(content)))
    client = codec.encode(mirror, Position(line, column))
    assert client.character == sum(WIDTH[encoding](character) for character in content[:column])
    assert codec.decode(mirror, client) == Position(line, column)


def test_lone_surrogates_are_counted_as_their_client_does() -> None:
    text = document("\ud83dx")
    assert PositionCodec(UTF16).decode(text, ClientPosition(0, 1)) == Position(0, 1)
    assert PositionCodec(UTF8).decode(text, ClientPosition(0, 3)) == Position(0, 1)
