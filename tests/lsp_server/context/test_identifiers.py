"""The identifiers of whole texts are those of their lines."""

from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context.symbols import names_used, uses

PIECES = ["load", "def", "class", "x", "App", " ", "\n", "#", "import", "(", "\t", "é1", '"""', "self", "\f", "a" * 300]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_a_text_uses_what_its_lines_use(text: str) -> None:
    for lines in (text.splitlines(), text.splitlines(keepends=True)):
        assert names_used(lines) == {name for _, names in uses(lines) for name in names}


def test_imports_comments_and_what_is_defined_are_no_uses() -> None:
    lines = ["from lib import load", "# save", "class App: ...", "load(App, other)", "def", "value"]
    assert names_used(lines) == {"load", "App", "other", "value"}
