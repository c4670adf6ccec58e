"""Where a text ends by a stop rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import StopRule
from protocol.stopping import columns, find_stop, opened_at_end

LINE = StopRule()


@pytest.mark.parametrize(
    ("text", "kept"),
    [("return 1", None), ("return 1\n", "return 1"), ("return 1\r\nx", "return 1"), ("\nreturn", ""), ("", None)],
)
def test_single_line(text: str, kept: str | None) -> None:
    check(text, LINE, kept)


@pytest.mark.parametrize(
    ("indent", "text", "kept"),
    [
        (4, "x:\n    a\n    b\n", None),
        (4, "x:\n    a\nb", "x:\n    a"),
        (4, "x:\n    a\n  b", "x:\n    a"),
        (4, "x:\n    a\n\n\ndef g", "x:\n    a"),
        (4, "x:\n    a\n\n    b\n", None),
        (4, "x:\n    a\n   ", None),  # the line is not there yet
        (4, "x:\n\ta\nb", "x:\n\ta"),  # a tab is 4 columns
        (8, "x\n  \ta", "x"),  # two spaces and a tab are 4
        (8, "x\n  \t    a", None),
        (4, "x   \r\n\r\ny", "x"),
        (4, "\ny", ""),
        (0, "x\ny\nz\n", None),  # nothing dedents from column 0
        (4, "a\n    b\n    c\n)", "a\n    b\n    c"),
    ],
)
def test_block(indent: int, text: str, kept: str | None) -> None:
    check(text, StopRule(indent), kept)


CLOSED = StopRule(4, closers=("}", ")", "end", "</"))


@pytest.mark.parametrize(
    ("text", "kept", "last"),
    [
        ("{\n    a\n}", None, "{\n    a\n}"),  # the closing line may go on
        ("{\n    a\n}\n", "{\n    a\n}", "{\n    a\n}"),
        ("{\n    a\n})\n\nb", "{\n    a\n})", "{\n    a\n})"),
        ("{\n    a\n};  // b\nc", "{\n    a\n};  // b", "{\n    a\n};  // b"),
        ("{\n    a\n} else {", None, "{\n    a\n} else {"),
        ("{\n    a\n} else {\n", "{\n    a\n} else", "{\n    a\n} else"),
        ("{\n    a\n}, (b) => {\n", "{\n    a\n}, (b) =>", "{\n    a\n}, (b) =>"),
        ("{\n    a\nb", "{\n    a", "{\n    a"),
        ("{\n    a\n    }\n    b", None, None),
        ("\n    a\nen", None, "\n    a"),  # it may become a word that closes, and does not
        ("\n    a\nend", None, "\n    a\nend"),
        ("\n    a\nend\nb", "\n    a\nend", "\n    a\nend"),
        ("\n    a\nending\n", "\n    a", "\n    a"),
        ("\n    a\n<", None, "\n    a"),
        ("\n    a\n</p>\n", "\n    a\n</p>", "\n    a\n</p>"),
    ],
)
def test_block_with_its_closing_line(text: str, kept: str | None, last: str | None) -> None:
    check(text, CLOSED, kept)
    end, _ = find_stop(text, CLOSED, final=True)
    assert (None if end is None else text[:end]) == last


@pytest.mark.parametrize(
    ("rule", "text", "kept"),
    [
        # the block begins on the next line, or there is one line
        (StopRule(1, one_line=True), " x\n    y\nz", " x"),
        (StopRule(1, one_line=True), "\n    y\nz", "\n    y"),
        (StopRule(1, one_line=True), "\n    y", None),
        (StopRule(1, one_line=True), " x", None),
        # lines that are as deep as the header
        (StopRule(1, joining=("- ",)), "\n- a\n  b\n- c\nd", "\n- a\n  b\n- c"),
        (StopRule(1, joining=("{",), closers=("}",)), "\n{\n  a\n}\nb", "\n{\n  a\n}"),
        (StopRule(1, joining=("- ",)), "\n-", None),
        (StopRule(3, joining=("- ",)), "\n- a", ""),  # less deep than the header
        # lines whose depth means nothing
        (StopRule(4, depthless=("#",)), "a\n#if b\n    c\n#endif\nd", "a\n#if b\n    c\n#endif"),
        # lines of a string
        (StopRule(4, quotes=("`",)), "a`\nb\n`\n    c\nd", "a`\nb\n`\n    c"),
        (StopRule(4, quotes=("`",)), "a`\\`\nb`\nc", "a`\\`\nb`"),
        (StopRule(4, quotes=("'''", '"""')), '"""\nit\'\'\'s\n"""\nd', '"""\nit\'\'\'s\n"""'),
        (StopRule(4, quotes=('"""',)), '"""a\n    b\n"""\nd', '"""a\n    b'),
        (StopRule(4, quotes=("<<",)), "a <<~EOS\nb\n    c\n  EOS.d\n    e\nf", "a <<~EOS\nb\n    c\n  EOS.d\n    e"),
        (StopRule(4, quotes=("<<",)), "a(<<-'EOS')\nb\nEOST\nc", None),
        (StopRule(4, quotes=("<<", "<< ")), "a << EOS\nb\nEOS\nc", "a << EOS\nb\nEOS"),
        (StopRule(4, quotes=("<<<",)), 'a = <<<"EOS"\nb\nEOS;\n    c\nd', 'a = <<<"EOS"\nb\nEOS;\n    c'),
        (StopRule(4, quotes=("<<",)), "a << b\nc", "a << b"),
        (StopRule(4, quotes=("<<",)), "1<<N\nc", "1<<N"),
        (StopRule(4, quotes=("<<",)), "a <<<EOS\nc", "a <<<EOS"),
        # of one that is open at the cursor
        (StopRule(4, quotes=("`",), opened="` "), "\nb\n`\n    c\nd", "\nb\n`\n    c"),
        (StopRule(4, quotes=("<<",), opened="<<A\n"), "A\n    c\nd", "A\n    c"),
        (StopRule(4, one_line=True, quotes=("<<",), opened="<<A "), "\nb\nA\n    c\nd", "\nb\nA\n    c"),
        # a block that is as deep as its first line
        (StopRule(9, opens=True), "\n    a\n        b\n    c\n}", "\n    a\n        b\n    c"),
        (StopRule(9, opens=True, closers=("}",)), "\n    a\n}\nb", "\n    a\n}"),
        (StopRule(9, opens=True), "\n  }\n  b", ""),
        (StopRule(9, opens=True), "\na\nb", None),
        (StopRule(9, opens=True, one_line=True), "\n    a\nb", "\n    a"),
        (StopRule(9, opens=True, one_line=True), "\na\nb", ""),
        (StopRule(9, opens=True), "a)\n    b", "a)"),
        (StopRule(5, opens=True, joining=("case",)), "\n    case a:\n        b\n    d", "\n    case a:\n        b"),
        (StopRule(9, opens=True, joining=("case",)), "\n    case a:\n        b\n    c\nd", "\n    case a:\n        b\n    c"),
        (StopRule(9, opens=True, depthless=("#",)), "\n#if a\n    b\n#endif\nc", "\n#if a\n    b\n#endif"),
        # eight columns to a tab
        (StopRule(5, tab_columns=8), "\n\ta\n    b", "\n\ta"),
        (StopRule(5, tab_columns=4), "\n\ta\n    b", ""),
    ],
)
def test_what_belongs_to_a_block(rule: StopRule, text: str, kept: str | None) -> None:
    check(text, rule, kept)


def check(text: str, rule: StopRule, kept: str | None) -> None:
    end, _ = find_stop(text, rule)
    assert (None if end is None else text[:end]) == kept


@given(
    text=st.lists(st.sampled_from(["a", " ", "    ", "\t", "\n", "\r\n", "b ", "<<A", "A"]), max_size=25).map("".join),
    cuts=st.sets(st.integers(0, 60)),
    rule=st.builds(
        StopRule,
        st.sampled_from([None, 0, 2, 4, 8]),
        one_line=st.booleans(),
        opens=st.booleans(),
        closers=st.sampled_from([(), ("b", "a")]),
        joining=st.sampled_from([(), ("b",)]),
        quotes=st.sampled_from([(), ("a",), ("<<",)]),
        opened=st.sampled_from(["", "<<A ", "a "]),
    ),
)
def test_text_that_comes_in_pieces_ends_where_the_whole_ends(text: str, cuts: set[int], rule: StopRule) -> None:
    expected, _ = find_stop(text, rule)
    end, resume_at = None, 0
    for length in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        end, resume_at = find_stop(text[:length], rule, resume_at)
        if end is not None:
            break
    assert end == expected


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("a `b`", ""),
        ("a `b", "` "),
        ("a <<B | c", "<<B "),
        ("a <<-'B'\nc", "<<-'B\n"),
        ("a <<B\nc\nB", ""),
        ("a <<" + "B" * 52, ""),  # no longer than a rule may have it
    ],
)
def test_what_is_open_at_the_end(text: str, opened: str) -> None:
    assert opened_at_end(text, ("`", "<<")) == opened


def test_columns() -> None:
    assert [columns(space) for space in ("", "  ", "\t", " \t", "\t ", "    \t")] == [0, 2, 4, 4, 5, 8]
    assert [columns(space, 8) for space in ("\t", "    \t", "\t ")] == [8, 8, 9]
