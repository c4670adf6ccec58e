"""The syntax of each language by its id: what opens a block, and which text is a comment or a string."""

from __future__ import annotations

import re
from dataclasses import dataclass
from re import Pattern

_BRACKETS = r"\(|\)|\[|\]|\{|\}"  # alternatives, not a set: `re` can then search by first characters
_STRING = r'"(?:\\.|[^"\\\n])*"?'
_CHARACTERS = r"'(?:\\.|[^'\\\n])*'?"
_TEMPLATE = r"`(?:\\.|[^`\\])*`?"
_TRIPLE = r'"""(?:\\.|[^\\]|\\\Z)*?(?:"""|\Z)' + r"|'''(?:\\.|[^\\]|\\\Z)*?(?:'''|\Z)"
_RUST_CHARACTER = r"'(?:\\[^\n]{1,8}?|[^'\\\n])'"  # a lone quote is a lifetime
_C_COMMENTS = r"//[^\n]*|/\*.*?(?:\*/|\Z)"

_PYTHON_OPENER = re.compile(r"\s*(?:async|class|def|if|elif|else|for|while|with|try|except|finally|match|case)\b.*:\Z")


@dataclass(frozen=True, slots=True)
class Language:
    """`tokens` matches comments and strings, each whole, and single brackets; other text does not match."""

    tokens: Pattern[str]
    openers: tuple[str, ...]  # what a line ends with that opens a block
    opening_line: Pattern[str] | None = None  # or the pattern of such a line


def language(language_id: str) -> Language:
    """The language with this LSP id; an unknown id is treated as text with brackets and strings."""
    return _LANGUAGES.get(language_id, _UNKNOWN)


def language_id_of(suffix: str) -> str:
    """The language id for a file suffix, for use without an editor; an unknown suffix is returned itself."""
    return _ID_BY_SUFFIX.get(suffix, suffix.removeprefix("."))


def opens_block(line: str, language_id: str) -> bool:
    """Whether `line`, up to the cursor, ends with a block opener."""
    known, line = language(language_id), line.rstrip()
    if line.endswith(known.openers):
        return True
    return known.opening_line is not None and known.opening_line.match(line) is not None


def _tokens(*parts: str) -> Pattern[str]:
    return re.compile("|".join((*parts, _BRACKETS)), re.DOTALL)


_UNKNOWN = Language(_tokens(_STRING), (":", "{", "(", "[", "=>", "->"))
_PYTHON = Language(_tokens(r"#[^\n]*", _TRIPLE, _STRING, _CHARACTERS), ("{", "(", "["), _PYTHON_OPENER)
_C_LIKE = Language(_tokens(_C_COMMENTS, _STRING, _CHARACTERS), ("{", "(", "["))
_GO = Language(_tokens(_C_COMMENTS, _TEMPLATE, _STRING, _CHARACTERS), ("{", "(", "["))
_SCRIPT = Language(_GO.tokens, ("{", "(", "[", "=>"))
_RUST = Language(_tokens(_C_COMMENTS, _STRING, _RUST_CHARACTER), ("{", "(", "[", "=>"))

_ID_BY_SUFFIX = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".mjs", ".cjs"), "javascript"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cpp", ".cc", ".hpp", ".cxx"), "cpp"),
    ".jsx": "javascriptreact",
    ".tsx": "typescriptreact",
    ".rs": "rust",
    ".go": "go",
    ".java": "java",
    ".cs": "csharp",
}

_LANGUAGES = {
    "python": _PYTHON,
    "rust": _RUST,
    "go": _GO,
    **dict.fromkeys(("javascript", "javascriptreact", "typescript", "typescriptreact"), _SCRIPT),
    **dict.fromkeys(
        ("c", "cpp", "cuda-cpp", "objective-c", "csharp", "java", "kotlin", "scala", "swift", "dart", "php"), _C_LIKE
    ),
}
