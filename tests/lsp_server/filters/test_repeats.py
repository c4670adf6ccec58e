"""Brackets and quotes: closed once, by the suggestion or by the document.

Nothing is said twice.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.lexing import MOST_CHARS
from lsp_server.filters.cursor_context import Insertion
from lsp_server.filters.order import fitted
from lsp_server.filters.repeats import cut_at_next_lines, drop_rest_of_line, drop_surplus_closers
from tests.lsp_server.filters.golden import filtered, place, suggested

LANGUAGES = ("python", "ruby", "vue", "sql", "shellscript", "markdown", "latex", "made-up")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        # what the editor closed is not closed again, in any language
        ("f(║)", "a, b)", "f(⟦a, b⟧)"),
        ("f(║)", "a, b", "f(⟦a, b⟧)"),
        ("f(║)", ")", "f(║)"),
        ("f(g(║))", "a))", "f(g(⟦a⟧))"),
        ("f(g(║))", "a)", "f(g(⟦a⟧))"),
        ("puts '║'", "hello'", "puts '⟦hello⟧'"),
        ("use `║`", "pip` to install", "use ⟦`pip` to install⟧".replace("⟦`", "`⟦")),
        ('print("║")', 'hello")', 'print("⟦hello⟧")'),
        ("x = {'a║'}", "b': [1]}", "x = {'a⟦b': [1]⟧}"),
        ("# see open(║)", "path) for details", "# see open(⟦path) for details⟧"),
        ("it's (║)", "don't)", "it's (⟦don't⟧)"),
        # what the text opened itself stays closed
        ("f(║)", "bar()", "f(⟦bar()⟧)"),
        ("f(║)", "bar())", "f(⟦bar()⟧)"),
        ("f(║)", "')'", "f(⟦')'⟧)"),
        ('f("║")', 'a" + "b', 'f("⟦a" + "b⟧")'),
        ("f('║')", "/', (a, b) => {", "f('⟦/', (a, b) => {⟧)"),
        # a string begins behind its prefix, and behind an escape that ends the one before it
        ("print('║')", "a', b'b')", "print('⟦a', b'b⟧')"),
        ("f(u8'a', u8'║')", "b')", "f(u8'a', u8'⟦b⟧')"),
        ("f(rb'a', L'║')", "b')", "f(rb'a', L'⟦b⟧')"),
        ("split '║'", " ' \\t'x'", "split '⟦ ' \\t'x⟧'"),
        # a string in a string, with the same quotes
        ("s = `${p ? `║`}`;", "(${p})` : 'no'}`", "s = `${p ? `⟦(${p})` : 'no'⟧}`;"),
        ('echo "$(f "║")"', '$0") [-n]" >&2', 'echo "$(f "⟦$0") [-n]" >&2⟧'),
        # the first or the last two of three quotes
        ('    "║"', '""Do.', '    "⟦""Do.⟧'),
        ('    """Do."║"', '""', '    """Do."⟦"⟧"'),
        ('f("║")', '""a""")', 'f("⟦""a""⟧")'),
        ("`║`", "``sh", "`⟦``sh⟧"),
        # where the text goes on behind a closer, it replaces the document's
        ("def f(║)", "a, b):", "def f(⟦a, b):⟧"),
        ("f(g(║))", "a), b)", "f(g(⟦a), b⟧)"),
        # the space before a closer is the model's
        ("if [ ║]", '-f "$x" ]', 'if [ ⟦-f "$x" ⟧]'),
        ("import { ║} from 'x'", "a, b }", "import { ⟦a, b ⟧} from 'x'"),
        # but stands once
        ("import { ║ } from 'x'", "a, b }", "import { ⟦a, b⟧ } from 'x'"),
        ("{{ ║ }}", "a }}", "{{ ⟦a⟧ }}"),
        ("f( g( ║ ) )", "a ), b )", "f( g( ⟦a ), b⟧ )"),
        # anything else behind the cursor is left alone
        ("x = [║]", "f()", "x = [⟦f()⟧]"),
    ],
)
def test_what_the_editor_closed(language: str, marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, language) == expected
    assert suggested(marked, text, language, is_cut=True) == expected


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        # a regular expression may have half a pair
        ("ruby", "a.gsub(║)", "%r/[(]b/, '')", "a.gsub(⟦%r/[(]b/, ''⟧)"),
        ("perl", "sub f {║}", " g 'a', split(/::|'/, shift), 'b' }", "sub f {⟦ g 'a', split(/::|'/, shift), 'b' ⟧}"),
        # the cursor may stand in one
        ("perl", '$a =~ /b="([║]', '^"]+)"/;', '$a =~ /b="([⟦^"]+)"/;⟧'),
        ("ruby", "a =~ /[║]", "^']'/", "a =~ /[⟦^']'/⟧"),
        # not every quote opens a string
        ("ocaml", "function (║)", "`A as a), `B -> a", "function (⟦`A as a), `B -> a⟧"),
        # and a closer in a string is none
        ("ocaml", "f (║)", "`A, ')'", "f (⟦`A, ')'⟧)"),
        ("python", "f(║)", "a, ')'", "f(⟦a, ')'⟧)"),
    ],
)
def test_closers_are_found_as_the_languages_lexer_finds_them(language: str, marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, language) == expected


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        ("rust", "fn f() {\n    g(║\n    )\n}\n", "1, 2)", "fn f() {\n    g(⟦1, 2⟧\n    )\n}\n"),
        (
            "python",
            "x = f(\n    g(\n        1,\n        2║\n    )\n)\n",
            ")",
            "x = f(\n    g(\n        1,\n        2║\n    )\n)\n",
        ),
        ("python", "f(\n    ║\n)\n", "g(a))", "f(\n    ⟦g(a)⟧\n)\n"),
        # one that the document lacks
        ("python", "x = f(g(\n    a║\n)\n", ")", "x = f(g(\n    a⟦)⟧\n)\n"),
        ("java", "    ║\n}\n", "}\n\n    void f() {", "    ⟦}\n\n    void f() {⟧\n}\n"),
        # text of literals and comments is no closer
        ("javascript", "g(a, ║\n)\n", "/[)\\]]/", "g(a, ⟦/[)\\]]/⟧\n)\n"),
        ("c", "f(║\n)\n", "')'", "f(⟦')'⟧\n)\n"),
        (
            "c",
            "// 1) }\nvoid f() {\n    if (a) {\n        ║\n}\n",
            "b();\n    }",
            "// 1) }\nvoid f() {\n    if (a) {\n        ⟦b();\n    }⟧\n}\n",
        ),
        ("python", "s = ':)'\nx = f(g(\n    ║\n)\n", "a)", "s = ':)'\nx = f(g(\n    ⟦a)⟧\n)\n"),
        ("python", "s = ':)'\nx = f(\n    ║\n)\n", "a)", "s = ':)'\nx = f(\n    ⟦a⟧\n)\n"),
        # nothing is cut for balance where the language is unknown, or prose
        ("markdown", "1\n║\n)\n", "a) b", "1\n⟦a) b⟧\n)\n"),
        ("made-up", "f(a║\n)\n", ", b)", "f(a⟦, b)⟧\n)\n"),
        # nor at a closer that the document has not
        ("python", "x = ║\n", "a]", "x = ⟦a]⟧\n"),
    ],
)
def test_a_bracket_that_the_document_has_next(language: str, marked: str, text: str, expected: str) -> None:
    assert filtered(drop_surplus_closers, marked, text, language) == expected


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("for (const a of f(║) as A[]) {\n}\n", "b)) {", "for (const a of f(⟦b)⟧ as A[]) {\n}\n"),
        ("for (const a of f(║) as A[]) {\n}\n", "b).c) {", "for (const a of f(⟦b).c⟧ as A[]) {\n}\n"),
        ('f("║", g);\n', 'a", b)', 'f("⟦a", b⟧, g);\n'),
        ("f(g(║), (a) => b);\n", "a), h(b)", "f(g(⟦a), h(b⟧), (a) => b);\n"),
        ("f(\n    g(║)\n);\n", "a)).b", "f(\n    g(⟦a)⟧\n);\n"),
        # one that the line opens itself
        ("const a = f(║) + g(1);\n", "b)).c(", "const a = f(⟦b)).c(⟧ + g(1);\n"),
    ],
)
def test_a_bracket_further_on_in_the_line_behind_a_closer_that_the_text_replaces(marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, "typescript") == expected


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("    if (a) {\n        ║\n}\n", "b();\n    }", "    if (a) {\n        ⟦b();\n    }⟧\n}\n"),
        ("    if (a) {\n        ║\n    }\n}\n", "b();\n    }", "    if (a) {\n        ⟦b();⟧\n    }\n}\n"),
    ],
)
def test_a_deeper_bracket_than_that_of_a_document_too_long_to_be_lexed(marked: str, text: str, expected: str) -> None:
    head = "// 1) }\n" + "// a\n" * MOST_CHARS + "void f() {\n"
    assert filtered(drop_surplus_closers, head + marked, text, "c") == head + expected


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("<li>║ foo</li>", "bar</li>", "<li>⟦bar⟧ foo</li>"),
        # the end of the cursor's tag
        ("<a ║>x</a>", 'href="b">c</a>', '<a ⟦href="b"⟧>x</a>'),
        ('<li class="║">x</li>', 'a>b">c</li>', '<li class="⟦a>b⟧">x</li>'),
        ("return <a ║>{x}</a>;", "onClick={() => f()}>c</a>;", "return <a ⟦onClick={() => f()}⟧>{x}</a>;"),
        # what the text opens itself, and what is opened above
        ("<p>║ foo</p>", "<b>bar</b><br/>", "<p>⟦<b>bar</b><br/>⟧ foo</p>"),
        ("<p>║ foo</p>", "bar</p><p>", "<p>⟦bar</p><p>⟧ foo</p>"),
        ("<p>\n║ foo</p>", "bar</p>", "<p>\n⟦bar</p>⟧ foo</p>"),
    ],
)
def test_a_tag_that_the_rest_of_the_line_closes(marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, "html") == expected


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_editor_closed_on_a_line_below(language: str) -> None:
    where = replace(place("f(\n    ║\n)\n", language), hidden="\n)")
    assert fitted("a)", where).insertion == Insertion("a")
    assert fitted("g(a)", where).insertion == Insertion("g(a)")


@pytest.mark.parametrize("language", LANGUAGES)
def test_quotes_of_the_lines_below_do_not_open_the_string_of_the_cursors_line(language: str) -> None:
    text = "pip`:\n\n```sh"
    assert fitted(text, place("see `║`", language)).insertion == Insertion(text, replaced=1)


@given(st.lists(st.sampled_from(["a", " ", "(b)", "[c]", "{d}", "'e'", ', "f"']), min_size=1, max_size=8), st.data())
def test_a_call_is_closed_once_wherever_its_line_is_cut(parts: list[str], data: st.DataObject) -> None:
    """The model writes the rest of the author's line, and the editor has closed the call."""
    inside = "".join(parts).strip() or "a"
    cut = data.draw(st.sampled_from([0, len(inside)]))
    language = data.draw(st.sampled_from(LANGUAGES))
    shown = suggested(f"call({inside[:cut]}║)", inside[cut:] + ")", language)
    assert shown.replace("⟦", "").replace("⟧", "").replace("║", "") == f"call({inside})"


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("f(║, b)", "a, b)", "f(⟦a⟧, b)"),
        ("x = ║ + 1", "2 + 1", "x = ⟦2⟧ + 1"),
        ("x = ║+ 1", "2 + 1", "x = ⟦2 ⟧+ 1"),
        ("x = ║;", "f();", "x = ⟦f()⟧;"),
        ("re║turn x", "turn x", "re║turn x"),
        ("return ║foo(x)", "bar(foo(x))", "return ⟦bar(⟧foo(x)"),
        ("f(║, b)", "a,", "f(⟦a⟧, b)"),
        # whole words alone
        ("return ║total", "self.subtotal + ", "return ⟦self.subtotal + ⟧total"),
        ("x = ║value", "default_value or ", "x = ⟦default_value or ⟧value"),
        ("f(║n)", "len", "f(⟦len⟧n)"),
        # no overlap
        ("x = ║ + 1", "2", "x = ⟦2⟧ + 1"),
        ("x = ║", "2", "x = ⟦2⟧"),
    ],
)
def test_the_rest_of_the_line_is_not_said_again(marked: str, text: str, expected: str) -> None:
    assert filtered(drop_rest_of_line, marked, text) == expected


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        # a tag or a word that closes what the text has opened
        ("html", "<div>║</div>", '<div class="a">hi</div>', '<div>⟦<div class="a">hi</div>⟧</div>'),
        ("html", "<div>║</div>", '<div class="a">hi</div></div>', '<div>⟦<div class="a">hi</div>⟧</div>'),
        ("html", "<div>║</div>", "<br/>hi</div>", "<div>⟦<br/>hi⟧</div>"),
        ("html", "<b>║</b>", "<b/></b>", "<b>⟦<b/>⟧</b>"),
        ("html", "<p>║</p>", "hi</p>", "<p>⟦hi⟧</p>"),
        ("lua", "f = function() ║ end", "if x then y() end", "f = function() ⟦if x then y() end⟧ end"),
        ("lua", "f = function() ║ end", "y() end", "f = function() ⟦y()⟧ end"),
        # behind a closer that the text replaces
        ("html", '<div class="║"></div>', 'a">hello</div>', '<div class="⟦a">hello</div>⟧'),
        ("html", '<div class="║"></div>', 'a"></div>', '<div class="⟦a⟧"></div>'),
        ("python", "y = foo(║) if value", "value if value else 0).strip()", "y = foo(⟦value⟧) if value"),
        ("python", "f(║) + total", "x) + total", "f(⟦x⟧) + total"),
        ("python", "f(║) + total", "x + total)", "f(⟦x⟧) + total"),
        # a statement that does not end there
        ("java", "items.filter(║).findFirst();", "i -> i.isDone());", "items.filter(⟦i -> i.isDone()⟧).findFirst();"),
        ("php", "$a = f(║)->g();", "$b);", "$a = f(⟦$b⟧)->g();"),
        ("java", "x = ║.toString();", "items.first();", "x = ⟦items.first()⟧.toString();"),
        ("java", "x = ║.toString();", "items.first()", "x = ⟦items.first()⟧.toString();"),
    ],
)
def test_with_all_filters_the_rest_stands_once(language: str, marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, language) == expected


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        ("def f():\n    ║\n    return x\n", "x = 1\n    return x", "x = 1"),
        ("def f():\n    ║\n    return x\n\ny = 1\n", "return x", ""),
        ("def f():\n    ║\n\n    return x\n", "x = 1\n\n    return x", "x = 1\n"),
        ("║\na = 1\nb = 2\nc = 3\nd = 4\n", "a = 1\nb = 2\nc = 3\nd = 5", ""),  # several lines are no coincidence
        # lines that say little count where the suggestion goes on as the document does
        ("if a:\n    b()\n║\nelse:\n    c()\n", "else:\n    c()", ""),
        ("f(\n    a,\n    ║\n)\nx = 1\n", "b,\n)\nx = 1", "b,"),
        # another depth, another line, one that goes on otherwise, the beginning of a longer one
        ("if a:\n    ║\nreturn x\n", "return x", "return x"),
        ("x = ║\ny = 2\n", "1", "1"),
        ("║\n<div>\n  <p>a</p>\n</div>\n", "<div>\n  <b>c</b>\n</div>", "<div>\n  <b>c</b>\n</div>"),
        ("║\nimport os.path\n", "import os", "import os"),
        ("║\n- id: 30\n", "- id: 3", "- id: 3"),
        # a closing line, a line that the user has begun, and one of several that are equal
        ("  </div>\n║\n</div>\n", "</div>", "</div>"),
        ("x = f(║\nx = f(1)\n", "1)", "1)"),
        ("  <td></td>\n  ║\n  <td></td>\n", "<td></td>", "<td></td>"),
    ],
)
def test_the_next_lines_are_not_said_again(marked: str, text: str, inserted: str) -> None:
    assert filtered(cut_at_next_lines, marked, text) == marked.replace("║", f"⟦{inserted}⟧" if inserted else "║")


def test_a_word_that_begins_like_a_closer_is_none() -> None:
    marked = "x = 1\n║\nfile.close()\n"  # not `fi`
    assert filtered(cut_at_next_lines, marked, "file.close()", "lua") == marked


def test_the_beginning_of_the_next_line_repeats_it_where_the_text_was_cut() -> None:
    marked = "def f():\n    ║\n    return x\n"
    assert filtered(cut_at_next_lines, marked, "x = 1\n    retu", is_cut=True) == marked.replace("║", "⟦x = 1⟧")
    assert filtered(cut_at_next_lines, marked, "retu", is_cut=True) == marked
    imports, text = "║\nimport os.path\nimport re\n", "import os\nimport re"  # the first line is whole
    assert filtered(cut_at_next_lines, imports, text, is_cut=True) == imports.replace("║", f"⟦{text}⟧")


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        ("latex", "Let $f(║)$", "x)$ be continuous", "Let $f(⟦x)$ be continuous⟧"),
        ("latex", "Let $║$.", "x$ be one", "Let $⟦x$ be one⟧."),
        ("latex", "Let $║$", "x$ and $y$", "Let $⟦x$ and $y⟧$"),
        ("latex", "Let $║$", "x$", "Let $⟦x⟧$"),
        ("markdown", "It costs $5 or ║$6", "$7, then ", "It costs $5 or ⟦$7, then ⟧$6"),
        ("latex", "It costs \\$5 or ║$, then", "$x", "It costs \\$5 or ⟦$x⟧$, then"),
        ("shellscript", "echo $(f ║)$a", "b)$c", "echo $(f ⟦b)$c⟧$a"),
        ("shellscript", "echo $║$", "b$c", "echo $⟦b$c⟧$"),
    ],
)
def test_a_formula_is_closed_once(language: str, marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, language) == expected
