"""The languages of a corpus, by the suffixes of their files."""

from pathlib import PurePath
from typing import Literal

Family = Literal["python", "web", "other"]

PYTHON = frozenset({".py"})
WEB = frozenset({".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs", ".svelte", ".vue"})
OTHER = frozenset(
    {
        ".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".go", ".rs", ".java", ".lua", ".sh", ".bash", ".rb",
        ".php", ".zig", ".cs", ".kt", ".scala", ".swift",
    }
)  # fmt: skip
SUFFIXES = PYTHON | WEB | OTHER


def family_of(path: str) -> Family:
    """The family of languages that a file is measured with."""
    suffix = PurePath(path).suffix
    return "python" if suffix in PYTHON else "web" if suffix in WEB else "other"
