"""Definitions that the grammars find, in good code, in broken code and in anything else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.context.index.grammars import GRAMMAR_BY_SUFFIX, definitions_in

PYTHON = b'''
LIMIT: int = 3
@dataclass(frozen=True)
class Foo(Base):
    """Doc."""
    a: int
    def __init__(self, a: int,
                 b: str = "x") -> None:
        self.a = a
    @property
    def size(self) -> int: return 1
async def f(a, *,
  c=None):
    def nested(): pass
'''
SCRIPT = b"""
export interface Opts<T> { name: string; run(a: number): void }
export type Mode = 'a' | 'b';
export const make = (a: string, b = 2): Promise<number> => {
  return 1;
};
export default function go(x: number) { return x }
export abstract class Foo extends Bar {
  static y?: string;
  constructor(private readonly a: string) { super(); }
  async run<T>(a: T): Promise<T> { return a }
}
"""


def found(source: bytes, grammar: str) -> dict[str, str]:
    return {f"{each.container}.{each.name}".lstrip("."): each.shown for each in definitions_in(source, grammar)}


def test_python() -> None:
    assert found(PYTHON, "python") == {
        "LIMIT": "LIMIT: int = 3",
        "Foo": "@dataclass(frozen=True)\nclass Foo(Base):\n    a: int\n"
        '    def __init__(self, a: int, b: str = "x") -> None:\n    def size(self) -> int:',
        "Foo.a": "a: int",
        "Foo.__init__": 'def __init__(self, a: int, b: str = "x") -> None:',
        "Foo.size": "@property\ndef size(self) -> int:",
        "f": "async def f(a, *, c=None):",
    }


@pytest.mark.parametrize("grammar", ["typescript", "tsx"])
def test_typescript(grammar: str) -> None:
    definitions = found(SCRIPT, grammar)
    assert definitions["Opts"] == "export interface Opts<T>\n    name: string\n    run(a: number): void"
    assert definitions["Mode"] == "export type Mode = 'a' | 'b';"
    assert definitions["make"] == "make = (a: string, b = 2): Promise<number> =>"
    assert definitions["go"] == "export default function go(x: number)"
    assert definitions["Foo.run"] == "async run<T>(a: T): Promise<T>"
    assert definitions["Foo"].splitlines()[1] == "    static y?: string"


def test_go_and_rust() -> None:
    go = b"package a\ntype S struct { A int }\nfunc (s *S) Run(x int) error { return nil }\nfunc New() *S { }\n"
    assert found(go, "go") == {"S": "S struct {A int}", "Run": "func (s *S) Run(x int) error", "New": "func New() *S"}
    rust = b"pub struct S<T> { a: T }\npub trait Tr { fn go(&self) -> u8; }\npub fn f(x: u8) -> u8 { x }\n"
    assert found(rust, "rust") == {
        "S": "pub struct S<T> {a: T}",
        "Tr": "pub trait Tr\n    fn go(&self) -> u8;",
        "Tr.go": "fn go(&self) -> u8;",
        "f": "pub fn f(x: u8) -> u8",
    }


def test_a_definition_is_found_again_by_its_lines() -> None:
    lines = PYTHON.decode().splitlines(keepends=True)
    for each in definitions_in(PYTHON, "python"):
        assert tuple(lines[each.first : each.first + len(each.lines)]) == each.lines


def test_broken_code_gives_what_parses() -> None:
    assert "g" in found(b"def f(a, :\n  )(\n\ndef g(x):\n    return x\n", "python")


def test_what_is_shown_is_bounded() -> None:
    many = "".join(f"    def method_{n}(self, argument_{n}: int) -> None: ...\n" for n in range(3000))
    definitions = definitions_in(f"class Big:\n{many}".encode(), "python")
    assert len(definitions) == 2000
    assert max(len(each.shown) for each in definitions) <= 800
    deep = b"class A:\n" + b"".join(b" " * n + b"class A:\n" for n in range(1, 300))
    assert len(definitions_in(deep, "python")) < 10


@settings(max_examples=60)
@given(st.sampled_from(sorted(set(GRAMMAR_BY_SUFFIX.values()))), st.data())
def test_any_bytes_are_read(grammar: str, data: st.DataObject) -> None:
    whole = SCRIPT if "script" in grammar or grammar == "tsx" else PYTHON
    start, stop = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))
    noise = data.draw(st.binary(max_size=40))
    for each in definitions_in(whole[start:] + noise + whole[:stop], grammar):
        assert each.name
        assert each.lines


@pytest.mark.parametrize("odd", ["\x0c", "\x0b", "\x1c", "\x85", "\u2028"])
def test_lines_end_at_newlines_alone(odd: str) -> None:
    source = f"import os\n{odd}\nclass Foo:\n    def bar(self): ...\n"
    lines = {each.name: each.lines for each in definitions_in(source.encode(), "python")}
    assert lines == {"Foo": ("class Foo:\n",), "bar": ("    def bar(self): ...\n",)}
