"""The rules that drop unsuitable source files, each with its reason."""

import re
from pathlib import PurePath

MIN_BYTES = 200
MAX_BYTES = 400_000
MAX_LINE_CHARS = 400
MAX_MEAN_LINE_CHARS = 90
MIN_LETTER_SHARE = 0.45
MAX_REPEATED_LINE_SHARE = 0.5

HEADER_LINES = 30

_VENDORED = frozenset(
    {
        "_vendor", "_vendored", "_vendored_packages", "extern", "external", "externals", "third_party", "thirdparty",
        "3rdparty", "vendor", "node_modules",
    }
)  # fmt: skip
_TESTS = frozenset({"test", "tests", "testing", "_tests", "idle_test", "__tests__", "spec", "specs", "testdata"})
_TEST_NAMES = re.compile(r"test_.*|.*([._-]test|[._-]spec|Tests?|_unittest)\.\w+")
_COPYLEFT = re.compile(
    r"GNU (?:Lesser |Library |Affero )?General Public|\b[AL]?GPL(?:v?[23])?\b|Mozilla Public License"
)
_COMPILED = re.compile(
    r"""defineProperty\(exports, ["']__esModule|\b__(?:awaiter|extends|decorate|importDefault|toESM|commonJS|webpack)"""
    r"""|_interopRequire|_createForOfIterator|sourceMappingURL=|^/\*! For license""",
    re.MULTILINE,
)
_GENERATED = re.compile(
    r"@generated|(?:auto-?|automatically )generated|generated (?:by|from)|do not (?:edit|modify)|file was generated",
    re.IGNORECASE,
)


def is_vendored(path: PurePath) -> bool:
    """Whether a file is another project's copy: the package's own licence says nothing about it."""
    return any(part in _VENDORED for part in path.parts)


def is_test(path: PurePath) -> bool:
    """Whether a file is a test, judged by its folders and its name."""
    in_tests = any(part in _TESTS for part in path.parts[:-1])
    return in_tests or _TEST_NAMES.fullmatch(path.name) is not None


def has_copyleft_notice(text: str) -> bool:
    """Whether a file's header names a licence that is not permissive, whatever its package's metadata says."""
    return _COPYLEFT.search("\n".join(text.splitlines()[:HEADER_LINES])) is not None


def read_source(raw: bytes) -> str | None:
    """Decode a file as UTF-8 with newlines as `\\n`; None if it is not UTF-8 text."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    text = text.replace("\r\n", "\n")
    if "\r" in text or "\0" in text:
        return None
    return text if text.endswith("\n") else text + "\n"


def reason_to_drop(text: str) -> str | None:
    """Name the first rule that a decoded file breaks; None for a file worth keeping."""
    if not MIN_BYTES <= len(text.encode()) <= MAX_BYTES:
        return "size"
    lines = text.splitlines()
    if max(map(len, lines)) > MAX_LINE_CHARS:
        return "long lines"
    filled = [line.strip() for line in lines if line.strip()]
    if not filled or sum(map(len, filled)) / len(filled) > MAX_MEAN_LINE_CHARS:
        return "long lines"
    if _GENERATED.search("\n".join(lines[:15])):
        return "generated"
    if _COMPILED.search(text):
        return "compiled"
    if sum(map(str.isalpha, text)) < MIN_LETTER_SHARE * sum(map(len, filled)):
        return "data"
    long_lines = [line for line in filled if len(line) > 10]
    if len(set(long_lines)) < (1 - MAX_REPEATED_LINE_SHARE) * len(long_lines):
        return "repetitive"
    return None
