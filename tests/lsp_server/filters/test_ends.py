"""Where a suggestion ends.

Texts that a limit has cut.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lsp_server.filters.ends import end_loop, end_with_block, end_with_whole_statement, is_within_token, stop_rule
from protocol.messages import StopRule
from tests.lsp_server.filters.golden import filtered, place, suggested

LINE = StopRule()


@pytest.mark.parametrize(
    ("line", "indent", "one_line"),
    [
        ("║", 0, False),
        ("    ║", 4, False),
        ("\t\t║", 8, False),
        ("  \t║  ", 4, False),
        ("fn main() {║", 1, False),
        ("\tcall(║", 5, False),
        # a line that may be whole: the model says whether a block follows
        ("def f(x):║", 1, True),
        ("    if x:  ║", 5, True),
        ("def f():  # noqa║", 1, True),
        (") -> int:║", 1, True),
        ("x = ║", 1, True),
        # inside of a line
        ("foo(║)", None, False),
        ("x = ║ + 1", None, False),
        ("    ║)", None, False),
        ("if x:║  # why", None, False),
    ],
)
def test_stop_rule(line: str, indent: int | None, *, one_line: bool) -> None:
    rule = stop_rule(place(line))
    assert (rule.indent, rule.one_line) == (indent, one_line)
    assert stop_rule(place(line, multi_line=False)) == LINE


@pytest.mark.parametrize(
    ("language", "marked", "lacks"),
    [
        ("c", "struct a {║\n", True),
        ("c", "struct a {║\n};\n", False),
        ("c", "struct a {║\n\nint b;\n", True),
        ("c", "if (a) {\n    ║\n}\n", False),
        ("c", "void f() {\n    if (a) {\n        ║\n}\n", True),  # that line closes f
        ("cpp", "namespace a {\nstruct b {║\n}  // namespace a\n", True),  # as deep, but of another block
        ("ruby", "class A\n  def f║\nend\n", True),
        ("ruby", "def f║\nend\n", False),
        ("html", "<div>║\n</div>\n", False),
        ("html", "<head>\n</head>\n<body>║\n</html>\n", True),
        ("typescript", "f(() => {║\n", True),
        # a word ends where a longer one goes on, closes no bracket, and `;;` no word
        ("go", "x := &File{║\nfile.body = x\n", True),
        ("ruby", "File.open(a) do |f|║\nfilename\n", True),
        ("objective-c", "{\n  ║\n\n@end\n", True),
        ("objective-c", "@interface A : B\n  ║\n\n@end\n", False),
        ("objective-cpp", "@interface A : B\n  ║\n\n@end\n", False),
        ("shellscript", "a)\n    for b in c; do║\n    ;;\n", True),
        ("shellscript", "a)║\n;;\n", False),
        ("cmake", "    if (NOT a) # (b)\n        ║\n    endif()\n", False),
        ("cmake", "    if (NOT a # b\n        ║\n    endif()\n", True),
        ("ocaml", "module A (B : sig║\n  open B\nend\n", True),
        ("lua", "f(function()║\nend)\n", False),
        # the word closes what stands around, as deep
        ("julia", "module A\n\nfunction f(x)║\n\nend\n", True),
        ("julia", "module A\n\nfunction f(x)║\nend\n\nend\n", False),
        ("ruby", "module A\nclass B\n  ║\nend\n", True),
        ("ruby", "module A\nclass B\n  ║\nend\nend\n", False),
        ("ruby", "f do |a|\n  b\nend\ng do |a|║\nend\n", False),
        ("elixir", "defmodule A do\nalias B\ndef f do║\nend\n", True),
    ],
)
def test_the_rule_has_closers_where_the_document_lacks_one(language: str, marked: str, *, lacks: bool) -> None:
    assert bool(stop_rule(place(marked, language)).closers) == lacks


def test_what_joins_a_block_is_its_languages() -> None:
    assert "{" in stop_rule(place("int f()║", "c")).joining
    assert stop_rule(place("    ║", "c")).joining == ()
    assert stop_rule(place("steps:║", "yaml")).joining == ("- ",)
    assert stop_rule(place("    ║", "c")).depthless == ("#",)
    wide = "int f()\n{\n    if (a)\n\tb();\n    ║\n"
    assert stop_rule(place(wide, "c")).tab_columns == 8
    assert replace(stop_rule(place(wide, "c")), tab_columns=4) != stop_rule(place(wide, "c"))


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        # one line in the middle of a line, and behind an ordinary one
        ("python", "x = ║ + 1", "2\ny = 3", "x = ⟦2⟧ + 1"),
        ("python", "x = ║", "2\ny = 3", "x = ⟦2⟧"),
        # a block up to its dedent
        ("python", "def f():\n    ║", "x = 1\n    return x\n\nprint()", "def f():\n    ⟦x = 1\n    return x⟧"),
        ("python", "if x:║", "\n    y()\nz()", "if x:⟦\n    y()⟧"),
        ("python", "if x:  # why║", "\n    y()\nelse:\n    z()", "if x:  # why⟦\n    y()⟧"),
        ("go", "\tif x {║", "\n\t\ty()\n\t}\n\tz()", "\tif x {⟦\n\t\ty()\n\t}⟧"),
        ("ruby", "def f║", "\n  g\nend\n\ndef h", "def f⟦\n  g\nend⟧"),
        ("shellscript", "if a; then║", "\n  b\nfi\nc", "if a; then⟦\n  b\nfi⟧"),
        ("html", "<ul>║", "\n  <li>a</li>\n</ul>\n<p>", "<ul>⟦\n  <li>a</li>\n</ul>⟧"),
        ("yaml", "steps:║", "\n- run: a\n- run: b\nenv:", "steps:⟦\n- run: a\n- run: b⟧"),
        ("csharp", "class A║", "\n{\n    int b;\n}\n\nclass C", "class A⟦\n{\n    int b;\n}⟧"),
        ("c", "int f() {║", "\n#ifdef A\n    a();\n#endif\n}\n\nint g", "int f() {⟦\n#ifdef A\n    a();\n#endif\n}⟧"),
        # labels that are as deep as their header
        ("go", "\tswitch x {║", "\n\tcase 1:\n\t\ty()\n\t}\n\tz()", "\tswitch x {⟦\n\tcase 1:\n\t\ty()\n\t}⟧"),
        ("c", "case 1:║", "\n    y();\ncase 2:\n    z();\n}", "case 1:⟦\n    y();⟧"),
        ("c", "f();║", "\ncases = 2;", "f();║"),
        ("cpp", "class A {║\n};\n", "\npublic:\n    int b;\n};", "class A {⟦\npublic:\n    int b;⟧\n};\n"),
        ("ruby", "x = case y║", "\nwhen 1\n  z\nend\n\nf", "x = case y⟦\nwhen 1\n  z\nend⟧"),
        ("latex", "\\begin{itemize}║", "\n\\item a\n\\end{itemize}\nb", "\\begin{itemize}⟦\n\\item a\n\\end{itemize}⟧"),
        # the closing line to its end, or to where it opens a bracket
        ("c", "struct size {║", "\n    int w;\n};\nint x;", "struct size {⟦\n    int w;\n};⟧"),
        ("typescript", "f(() => {║", "\n  g()\n}, 1);\nh()", "f(() => {⟦\n  g()\n}, 1);⟧"),
        ("typescript", "if (a) {║", "\n  b()\n} else {\n  c()\n}", "if (a) {⟦\n  b()\n} else⟧"),
        # a script in a document of another language
        ("yaml", "- |\n    if a; then║\n", "\n      b\n    fi\nc", "- |\n    if a; then⟦\n      b\n    fi⟧\n"),
        ("markdown", "quote do║\n#=> b\n", "\n  a()\nend\nc", "quote do⟦\n  a()\nend⟧\n#=> b\n"),
        ("markdown", "a.b do |c|║\n", "\n  d\nend\ne", "a.b do |c|⟦\n  d\nend⟧\n"),
        ("markdown", "def a(b) : C║\n", "\n  d\nend\ne", "def a(b) : C⟦\n  d\nend⟧\n"),
        ("markdown", "  a = function(b)║\n", "\n    c\n  end,\n}", "  a = function(b)⟦\n    c\n  end,⟧\n"),
        ("yaml", "if:║\n", "\n  start: 1\nend: 2", "if:⟦\n  start: 1⟧\n"),
        ("yaml", "a:║\n", "\n  start: 1\nend: 2", "a:⟦\n  start: 1⟧\n"),
        # what closes the module stays the module's
        ("julia", "module A\nfunction f()║\nend\n", "\n    g()\nend\n", "module A\nfunction f()⟦\n    g()\nend⟧\nend\n"),
        ("julia", "function f()\n    ║\nend\n", "g()\nend\n", "function f()\n    ⟦g()⟧\nend\n"),
        # on a blank line, through the line that closes what stands around it
        ("c", "    if (x) {\n        ║", "a();\n    }\n    b();", "    if (x) {\n        ⟦a();\n    }⟧"),
        ("python", "x = [\n    ║", "1,\n    2,\n]\ny", "x = [\n    ⟦1,\n    2,\n]⟧"),
        # lines of a string that the text opens have no depth
        ("python", "    ║", 'x = """\na\n"""\n    return x\ny', '    ⟦x = """\na\n"""\n    return x⟧'),
        ("go", "\t║", "x := `\na`\n\ty(x)\n}\n\nfunc f", "\t⟦x := `\na`\n\ty(x)\n}⟧"),
        ("typescript", "  ║\n", "f(`\na\n`)\n  g()\nh()", "  ⟦f(`\na\n`)\n  g()⟧\n"),
        ("shellscript", "  ║", "cat <<EOF\na\nEOF\n  b\n}\n\nc", "  ⟦cat <<EOF\na\nEOF\n  b\n}⟧"),
        ("shellscript", "  ║", "cat << eof\na\neof\n  b\n}\n\nc", "  ⟦cat << eof\na\neof\n  b\n}⟧"),
        ("shellscript", "  ║", "cat <<<a\n}\na", "  ⟦cat <<<a\n}⟧"),
        ("shellscript", "  ║", "x=$((1 <<a << b))\n}\na", "  ⟦x=$((1 <<a << b))\n}⟧"),
        ("ruby", "  ║", "x = <<~sql\na\nsql\n  y\nend\n\ndef z", "  ⟦x = <<~sql\na\nsql\n  y\nend⟧"),
        ("ruby", "  ║", "class <<self\nend\n\ndef self", "  ⟦class <<self\nend⟧"),
        ("php", "    ║", "$a = <<<b\nc\nb;\n    c();\n}\n\nd();", "    ⟦$a = <<<b\nc\nb;\n    c();\n}⟧"),
        ("ruby", "  ║", "x = <<~SQL.strip\na\nSQL\n  y\nend\n\ndef z", "  ⟦x = <<~SQL.strip\na\nSQL\n  y\nend⟧"),
        ("php", "    ║", "$a = <<<'A'\nb\nA;\n    c();\n}\n\nd();", "    ⟦$a = <<<'A'\nb\nA;\n    c();\n}⟧"),
        ("perl", "    ║", 'print <<"A";\nb\nA\n    c();\n}\n\nd();', '    ⟦print <<"A";\nb\nA\n    c();\n}⟧'),
        ("ruby", "  ║", "a << B\nend\n\ndef c", "  ⟦a << B\nend⟧"),
        # nor those of one that the cursor's line has opened
        ("shellscript", "  cat <<EOF║\n}\n", "\na\nEOF\n  b\n}\n\nc", "  cat <<EOF⟦\na\nEOF⟧\n}\n"),
        ("shellscript", "  cat <<EOF | b║\n}\n", "\na\nEOF\n  c", "  cat <<EOF | b⟦\na\nEOF⟧\n}\n"),
        ("shellscript", "  x=$((1 <<a))║\n}\n", "\na", "  x=$((1 <<a))║\n}\n"),
        ("shellscript", "  # see <<EOF║\n}\n", "\na\nEOF", "  # see <<EOF║\n}\n"),
        ("ruby", "  x = <<~SQL║\nend\n", "\n    a\n  SQL\n  y", "  x = <<~SQL⟦\n    a\n  SQL⟧\nend\n"),
        ("javascript", "  a = `║\n}\n", "\nb\n`;\n  c()", "  a = `⟦\nb\n`;⟧\n}\n"),
        ("python", '    """║', '\n    A.\n    """\n    x()\ny', '    """⟦\n    A.\n    """⟧'),
        ("python", 'a = """b"""║', "\nc", 'a = """b"""║'),
        # and of a heredoc that is open above
        ("shellscript", "f() {\n  cat <<EOF\n  a║\n", "\nb\nEOF\nc", "f() {\n  cat <<EOF\n  a⟦\nb\nEOF⟧\n"),
        ("shellscript", "  cat <<EOF\n  ║\nEOF\n", "a\nb", "  cat <<EOF\n  ⟦a\nb⟧\nEOF\n"),
        ("shellscript", "  cat <<EOF\nEOF\n  ║", "a\nb", "  cat <<EOF\nEOF\n  ⟦a⟧"),
        ("shellscript", "  x=1 # <<EOF\n  ║", "a\nb", "  x=1 # <<EOF\n  ⟦a⟧"),
        ("shellscript", "  cat <<EOF\n  ║", "EOF\nb\n", "  cat <<EOF\n  ⟦EOF⟧"),
        # but not of a string above, whose quote may stand in a comment
        ("javascript", "// a ` b\nif (a) {\n  b()║\n}\n", "\nc()", "// a ` b\nif (a) {\n  b()║\n}\n"),
        # nor those of one that it closes
        ("python", '    x = """[║', 'a]"""\n    y()\nz', '    x = """[⟦a]"""⟧'),
        ("python", 'def f():\n    """A.\n    ║', 'B.\n    """\n    x()\ny', 'def f():\n    """A.\n    ⟦B.\n    """\n    x()⟧'),
        # a header of several lines, whose last one is aligned
        ("c", "int f(int a,\n      int b) {║", "\n    g();\n}\n\nint h", "int f(int a,\n      int b) {⟦\n    g();\n}⟧"),
        ("cpp", "A::A(int b)\n    : b(b) {║", "\n  c();\n}\n\nd", "A::A(int b)\n    : b(b) {⟦\n  c();\n}⟧"),
        ("swift", "if a,\n  b {║\n}\n", "\n  c()\n  d()\n}\ne()", "if a,\n  b {⟦\n  c()\n  d()⟧\n}\n"),
        ("python", "def f(a,\n      b):║", "\n    g()\n\nh()", "def f(a,\n      b):⟦\n    g()⟧"),
        ("python", "def f(a,\n      b):║", "\ndef g():\n    h()", "def f(a,\n      b):║"),
        ("yaml", "  a:║", "\nb:\n  c: d", "  a:║"),
        # a body that is as deep as its header
        ("cpp", "namespace a {║", "\nint b;\n\nint c;", "namespace a {⟦\nint b;\n\nint c;⟧"),
        # no closer that the document has
        ("perl", "  return $a\n    ║\n}\n", "+ $b;\n}\n\nsub c", "  return $a\n    ⟦+ $b;⟧\n}\n"),
        ("shellscript", "  a \\║\ndone\n", "\n    b\ndone\nc", "  a \\⟦\n    b⟧\ndone\n"),
        ("vue", "  <a║\n  />\n", "\n    b\n  />\n</c>", "  <a⟦\n    b⟧\n  />\n"),
        ("c", "namespace a {\nint f()\n  ║\n}\n", "{\n  b();\n}\nc", "namespace a {\nint f()\n  ⟦{\n  b();\n}⟧\n}\n"),
        ("c", "void a() {\nif (b) {\n  ║\n}\n", "c();\n}\nd", "void a() {\nif (b) {\n  ⟦c();\n}⟧\n}\n"),
        ("c", "if (x) {\n    ║\n}\n", "a();\n}\nb();", "if (x) {\n    ⟦a();⟧\n}\n"),
    ],
)
def test_ends(language: str, marked: str, text: str, expected: str) -> None:
    assert filtered(end_with_block, marked, text, language) == expected


LITERALS = [
    *("0xFFFFFFFF", "1000000007", "1_000_000_000", "0.000000001", "#ffffffff", "[0.0, 0.0, 0.0, 0.0]", "10'000'000"),
    *('"(%s, %s, %s, %s)"', "(text,text,int,int,int)", "{0x00, 0x00, 0x00, 0x00}", "None, None, None, None"),
    *("00000000-0000-0000-0000-000000000000", "auto auto auto auto", "&nbsp;&nbsp;&nbsp;", "aaaaaaaaaaaaaaaa"),
]


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("language", ["python", "c", "css", "sql", "made-up"])
def test_what_the_model_ended_may_repeat_itself(literal: str, language: str) -> None:
    assert suggested("x = ║", literal, language) == f"x = ⟦{literal}⟧"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a.append(x)\na.append(x)\na.append(x)", "a.append(x)\n"),
        ("a.append(x)\na.append(x)\na.app", "a.append(x)\n"),
        ("b = 1\n" + "if abc:\n    f()\n" * 4, "b = 1\nif abc:\n    f()"),
        ("self.x, self.x, self.x, sel", "self.x, "),
        ("------------------", "-"),
        # one number or word
        ("0xFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFF"),
        ("1_000_000_000_000", "1_000_000_000_000"),
        ("ha_ha_ha_ha_ha_ha", "ha_ha_ha_ha_ha_ha"),
        # what repeats itself somewhere, but not to the end
        ("x x x x x x x x x x y", "x x x x x x x x x x y"),
        ("f(a, b)\nf(a, c)\nf(a, d)", "f(a, b)\nf(a, c)\nf(a, d)"),
        ("0, 0, 0, 0", "0, 0, 0, 0"),
        ("x()\nfoo(bar)\nfoo(bar)", "x()\nfoo(bar)\nfoo(bar)"),
        ("", ""),
    ],
)
def test_a_loop_goes_on_to_the_limit(text: str, kept: str) -> None:
    assert filtered(end_loop, "║", text, is_cut=True) == (f"⟦{kept}⟧" if kept else "║")
    assert filtered(end_loop, "║", text) == (f"⟦{text}⟧" if text else "║")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a = 1\n    return a", "a = 1\n    return a"),
        ("a = 1\n    if a:", "a = 1"),  # a header without a body
        ("a = 1\n    if a:\n        for b in a:", "a = 1"),
        ("a = 1\n    if a:\n        b = (1,\n             2,", "a = 1"),
        ("a = 1\n    @property", "a = 1"),
        ("a = 1\n    ", "a = 1"),
        ("if a:", "if a:"),  # one line
        ("if a:\n        if b:", "if a:"),
        ("call(\n        1,\n    )", "call(\n        1,\n    )"),
        ("call(\n        1,", "call("),
        ("\n    a = 1\n    if a:", "\n    a = 1"),
        ("\n    if a:", "\n    if a:"),  # the first line with text
        ("let a = 1;\n    if a {\n        b();", "let a = 1;"),
        ("let a = 1;\n    if a {\n        b();\n    }", "let a = 1;\n    if a {\n        b();\n    }"),
    ],
)
def test_a_cut_block_ends_with_a_whole_statement(text: str, kept: str) -> None:
    assert filtered(end_with_whole_statement, "║", text, is_cut=True) == f"⟦{kept}⟧"
    assert filtered(end_with_whole_statement, "║", text) == f"⟦{text}⟧"


@pytest.mark.parametrize("token", ["1000000007", "0xFFFF", "1.5", "1e-5", "10'000", "1_000", "name_2", "Zürich"])
def test_every_place_inside_of_a_word_or_number_is_within_it(token: str) -> None:
    text = f"x = {token}; y"
    within = {place for place in range(len(text) + 1) if is_within_token(text, place)}
    assert within == set(range(5, 4 + len(token)))


@given(st.text("ab1.'e+- (", max_size=12), st.integers(0, 12))
def test_a_word_is_never_cut(text: str, place: int) -> None:
    if 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum():
        assert is_within_token(text, place)
