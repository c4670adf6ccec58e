"""Judges whether a package's licence permits training on its source."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageMetadata

PERMISSIVE = frozenset(
    {
        "0BSD",
        "APACHE-2.0",
        "BSD",
        "BSD-2-CLAUSE",
        "BSD-3-CLAUSE",
        "BSL-1.0",
        "CC0-1.0",
        "CURL",
        "HPND",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "PSF-2.0",
        "PYTHON-2.0",
        "LIBPNG",
        "UNLICENSE",
        "ZLIB",
    }
)
"""SPDX identifiers, in capitals, that permit training and require at most attribution."""

_CLASSIFIERS = {
    "Apache Software License": "APACHE-2.0",
    "BSD License": "BSD",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "UNLICENSE",
    "zlib/libpng License": "ZLIB",
}
_COMMON_NAMES = {
    "3-CLAUSE BSD LICENSE": "BSD-3-CLAUSE",
    "APACHE": "APACHE-2.0",
    "APACHE 2": "APACHE-2.0",
    "APACHE 2.0": "APACHE-2.0",
    "APACHE 2.0 LICENSE": "APACHE-2.0",
    "APACHE LICENSE 2.0": "APACHE-2.0",
    "APACHE LICENSE, VERSION 2.0": "APACHE-2.0",
    "APACHE SOFTWARE LICENSE": "APACHE-2.0",
    "BSD 3-CLAUSE": "BSD-3-CLAUSE",
    "BSD LICENSE": "BSD",
    "EXPAT": "MIT",
    "MIT LICENSE": "MIT",
    "NEW BSD": "BSD-3-CLAUSE",
    "PSF": "PSF-2.0",
    "PSFL": "PSF-2.0",
    "THE MIT LICENSE": "MIT",
}
_OSI_PREFIX = "License :: OSI Approved"


@dataclass(frozen=True)
class Licence:
    """The licence in a package's metadata, and the decision about it."""

    name: str
    permitted: bool


def judge_licence(metadata: PackageMetadata) -> Licence:
    """Judge by License-Expression, else by the classifiers, else by the License field.

    The first of the three that is set decides. Unknown and missing licences, and those not on the allowlist, are
    refused.
    """
    expression = _field(metadata, "License-Expression")
    if expression:
        return Licence(expression, _expression_permits(expression))
    classifiers = [text for text in metadata.get_all("Classifier") or () if text.startswith("License ::")]
    named = [text.rpartition(" :: ")[2] for text in classifiers if text != _OSI_PREFIX]
    if named:
        return Licence(", ".join(named), _all_permitted(_CLASSIFIERS.get(text, "") for text in named))
    field = _field(metadata, "License")
    first_line = field.strip().partition("\n")[0].strip()
    if "\n" in field.strip() or not first_line:
        return Licence(first_line or "unknown", permitted=False)
    return judge_expression(first_line)


def judge_expression(expression: str) -> Licence:
    """Judge an SPDX expression, or a common name."""
    return Licence(expression, _expression_permits(_COMMON_NAMES.get(expression.upper(), expression)))


def _field(metadata: PackageMetadata, key: str) -> str:
    return next(iter(metadata.get_all(key) or ()), "")


def _expression_permits(expression: str) -> bool:
    """Whether an SPDX expression leaves only permissive obligations.

    One permissive side of OR suffices; AND requires both. Nested parentheses are resolved from the inside; WITH
    exceptions are not on the list, and refused.
    """
    flat = expression.upper()
    while (inner := re.search(r"\(([^()]*)\)", flat)) is not None:
        flat = flat[: inner.start()] + ("MIT" if _flat_permits(inner[1]) else "REFUSED") + flat[inner.end() :]
    return _flat_permits(flat)


def _flat_permits(expression: str) -> bool:
    alternatives = re.split(r"\s+OR\s+", expression.strip())
    return any(_all_permitted(re.split(r"\s+AND\s+", side)) for side in alternatives)


def _all_permitted(names: Iterable[str]) -> bool:
    return all(name.strip() in PERMISSIVE for name in names)
