"""From URIs to paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.editing.file_uris import shown_path, split_uri


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
