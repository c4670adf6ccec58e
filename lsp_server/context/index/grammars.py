"""Definitions in source files: names, signatures and members, from the trees of tree-sitter's grammars.

A parse holds Python's interpreter lock and a grammar is C code that reads hostile files, so only the index's own
process imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from tree_sitter import Language, Node, Parser

from lsp_server.documents.languages import grammar_by_file

_MOST_DEFINITIONS = 2_000  # of one file
_MOST_MEMBERS = 24  # shown of a class
_MOST_CHARS = 800  # of a shown definition
_MOST_LINE_CHARS = 160  # of one line of it
_MOST_NAME_CHARS = 100
_COMMENT = re.compile(r"#|//")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # as tree-sitter counts them; str.splitlines splits at form feeds, too
_MOST_DEPTH = 3  # of definitions within namespaces and classes


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, class, type or value of a file, or a member of one.

    `shown` is its signature, with the members of a class; `lines` are the file's lines from `first` on that hold the
    signature, by which it is found again.
    """

    name: str
    container: str
    shown: str
    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Grammar:
    """Node types of a grammar: what is a definition, what wraps one, what holds members, and what is shown whole."""

    definitions: frozenset[str]
    wrappers: frozenset[str]
    containers: frozenset[str]
    values: frozenset[str]  # shown whole, if short


_SCRIPT = (
    "function_declaration generator_function_declaration class_declaration abstract_class_declaration "
    "method_definition function_signature method_signature abstract_method_signature interface_declaration "
    "internal_module module",
    "export_statement lexical_declaration variable_declaration ambient_declaration expression_statement",
    "class_declaration abstract_class_declaration interface_declaration internal_module module",
    "type_alias_declaration enum_declaration variable_declarator public_field_definition field_definition property_signature",
)
# The module and the function of each grammar, and the fields of its `_Grammar`.
_GRAMMARS: Mapping[str, tuple[str, str, str, str, str, str]] = {
    "python": (
        "tree_sitter_python",
        "language",
        "function_definition class_definition",
        "decorated_definition expression_statement if_statement try_statement block else_clause except_clause",
        "class_definition",
        "assignment type_alias_statement",
    ),
    "javascript": ("tree_sitter_javascript", "language", *_SCRIPT),
    "typescript": ("tree_sitter_typescript", "language_typescript", *_SCRIPT),
    "tsx": ("tree_sitter_typescript", "language_tsx", *_SCRIPT),
    "go": (
        "tree_sitter_go",
        "language",
        "function_declaration method_declaration",
        "type_declaration const_declaration var_declaration var_spec_list",
        "",
        "type_spec const_spec var_spec type_alias",
    ),
    "rust": (
        "tree_sitter_rust",
        "language",
        "function_item function_signature_item trait_item impl_item mod_item macro_definition",
        "",
        "trait_item impl_item mod_item",
        "struct_item enum_item const_item static_item type_item union_item",
    ),
}
GRAMMAR_BY_SUFFIX: Mapping[str, str] = grammar_by_file()
"""The grammar of each suffix that the index reads."""


def definitions_in(source: bytes, grammar: str) -> list[Definition]:
    """The definitions at the top of a file and those in classes and namespaces; broken code gives what parses."""
    parser, known = _parser(grammar)
    lines = _LINE.findall(source.decode("utf-8", "replace"))
    found: list[Definition] = []
    for each in _definitions(parser.parse(source).root_node, known, "", 0):
        definition = _read(each, known, source, lines)
        if definition is not None:
            found.append(definition)
        if len(found) == _MOST_DEFINITIONS:
            break
    return found


@cache
def _parser(name: str) -> tuple[Parser, _Grammar]:
    module, function, *types = _GRAMMARS[name]
    language = getattr(import_module(module), function)
    return Parser(Language(language())), _Grammar(*(frozenset(names.split()) for names in types))


@dataclass(frozen=True, slots=True)
class _Found:
    node: Node
    outer: Node  # with its decorators, or the keyword before it
    container: str


def _definitions(parent: Node, grammar: _Grammar, container: str, depth: int, outer: Node | None = None) -> Iterator[_Found]:
    """The definitions among the children, and in the bodies of those that hold members."""
    if depth > 2 * _MOST_DEPTH:
        return
    for node in parent.named_children:
        if node.type in grammar.definitions or node.type in grammar.values:
            yield _Found(node, outer or node, container)
        if node.type in grammar.containers and (body := node.child_by_field_name("body")) is not None:
            yield from _definitions(body, grammar, _name(node), depth + 1)
        elif node.type in grammar.wrappers:
            yield from _definitions(node, grammar, container, depth + 1, node)


def _read(found: _Found, grammar: _Grammar, source: bytes, lines: list[str]) -> Definition | None:
    name = _name(found.node)
    if not name or len(name) > _MOST_NAME_CHARS:
        return None
    shown = _shown(found, grammar, source)
    first = found.node.start_point[0]
    last = max(first, _signature_end(found.node, grammar)[1])
    held = tuple(lines[first : min(last + 1, first + 8)])
    return Definition(name, found.container, shown, first, held) if shown and held else None


def _name(node: Node) -> str:
    field = "type" if node.type == "impl_item" else "left" if node.type == "assignment" else "name"
    named = node.child_by_field_name(field)
    text = named.text.decode("utf-8", "replace") if named is not None and named.text is not None else ""
    return text if re.fullmatch(r"[^\W\d][\w$]*", text.lstrip("#$")) else ""


def _signature_end(node: Node, grammar: _Grammar) -> tuple[int, int]:
    """The byte and the row where the body begins, or the end of what has none."""
    inner = node.child_by_field_name("value") if node.type in grammar.values else None
    body = (inner if inner is not None and "function" in inner.type else node).child_by_field_name("body")
    if body is None or node.type in ("enum_declaration", "enum_item", "struct_item"):
        return node.end_byte, node.end_point[0]
    before = body.prev_sibling
    return body.start_byte, before.end_point[0] if before is not None else body.start_point[0]


def _shown(found: _Found, grammar: _Grammar, source: bytes) -> str:
    """The signature as a prompt shows it; below a class's the signatures of its members."""
    start = found.outer.start_byte if found.outer.type in ("decorated_definition", "export_statement") else None
    text = _cut(source[found.node.start_byte if start is None else start : _signature_end(found.node, grammar)[0]])
    if found.node.type not in grammar.containers:
        return text
    body = found.node.child_by_field_name("body")
    shown = [text]
    for member in _definitions(body, grammar, "", 2 * _MOST_DEPTH - 1) if body is not None else ():
        if len(shown) > _MOST_MEMBERS or sum(map(len, shown)) > _MOST_CHARS:
            break
        signature = _cut(source[member.node.start_byte : _signature_end(member.node, grammar)[0]], indent="    ")
        shown.append(f"    {signature}")
    return "\n".join(shown)[:_MOST_CHARS]


def _cut(text: bytes, indent: str = "") -> str:
    """A signature without its body's opener: on one line if that is short, with decorators on lines of their own."""
    shown = text.decode("utf-8", "replace").replace("\r\n", "\n")[:_MOST_CHARS].rstrip().removesuffix("{").rstrip()
    lines = [line.strip() for line in shown.split("\n")]
    decorators = [line for line in lines if line.startswith("@")][:4]
    joined = re.sub(r"(?<=[(\[{]) | (?=[)\]}])", "", " ".join(line for line in lines if not line.startswith("@")))
    if len(joined) <= _MOST_LINE_CHARS and not _COMMENT.search(shown):
        lines = [*decorators, joined]
    return f"\n{indent}".join(line[:_MOST_LINE_CHARS] for line in lines[:12])
