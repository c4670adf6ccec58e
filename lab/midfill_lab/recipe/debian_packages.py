"""Reads unpacked Debian sources as sets of files with the licences of their machine-readable copyright file."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path, PurePath

from midfill_lab.recipe.environments import Package, SourceFile
from midfill_lab.recipe.licences import Licence, judge_expression
from midfill_lab.recipe.package_lists import Pinned
from midfill_lab.training.corpus.languages import SUFFIXES

# Debian's short names that differ from SPDX identifiers, in capitals.
_SHORT_NAMES = {
    "APACHE": "APACHE-2.0",
    "BOOST-1.0": "BSL-1.0",
    "BSD-2": "BSD-2-CLAUSE",
    "BOOST-1": "BSL-1.0",
    "BSD-3": "BSD-3-CLAUSE",
    "BSD-C3": "BSD-3-CLAUSE",
    "BSD-3-CLAUSE~REDIS": "BSD-3-CLAUSE",
    "BSD-3-GOOGLE": "BSD-3-CLAUSE",
    "BSL-1": "BSL-1.0",
    "CC0": "CC0-1.0",
    "EXPAT": "MIT",
    "GO": "BSD-3-CLAUSE",
    "MIT-1": "MIT",
    "PUBLIC-DOMAIN": "CC0-1.0",
    "X11": "MIT",
    "ZLIB/LIBPNG": "ZLIB",
}


@dataclass(frozen=True)
class _Stanza:
    pattern: re.Pattern[str]
    licence: Licence


def debian_package(folder: Path, pinned: Pinned) -> Package:
    """The source package that is unpacked in `folder`: only files whose own stanza names a permissive licence.

    The package's licence is that of most of its files. Without a machine-readable copyright file it is refused.
    """
    stanzas = list(_stanzas(folder / "debian" / "copyright"))
    kept: list[SourceFile] = []
    names = Counter[str]()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.suffix not in SUFFIXES or relative.parts[0] == "debian" or not path.is_file():
            continue
        licence = _licence_of(relative, stanzas)
        names[licence.name] += 1
        if licence.permitted:
            kept.append(SourceFile(path, relative))
    most = ", ".join(name for name, _ in names.most_common(3)) or "unknown"
    return Package(f"debian/{pinned.name}", pinned.version, Licence(most, permitted=bool(kept)), tuple(kept))


def _licence_of(path: PurePath, stanzas: list[_Stanza]) -> Licence:
    """That of the last stanza that matches, as the format defines it."""
    matching = [stanza.licence for stanza in stanzas if stanza.pattern.fullmatch(path.as_posix())]
    return matching[-1] if matching else Licence("unknown", permitted=False)


def _stanzas(copyright_file: Path) -> Iterator[_Stanza]:
    """The stanzas with files, of the format at debian.org/doc/packaging-manuals/copyright-format/1.0."""
    if not copyright_file.is_file():
        return
    for paragraph in re.split(r"\n\s*\n", copyright_file.read_text(encoding="utf-8", errors="replace")):
        fields = dict(re.findall(r"^([A-Za-z-]+):((?:.*)(?:\n[ \t].*)*)", paragraph, re.MULTILINE))
        if "Files" not in fields or "License" not in fields:
            continue
        name = fields["License"].strip().partition("\n")[0].strip()
        patterns = "|".join(translate(pattern) for pattern in fields["Files"].split())
        yield _Stanza(re.compile(patterns), judge_expression(_spdx(name)))


def _spdx(name: str) -> str:
    """Debian's expression with SPDX identifiers; a comma separates as in `A, and B`."""
    words = re.split(r"(\s+(?:and|or)\s+)", name.replace(",", " "), flags=re.IGNORECASE)
    return "".join(_SHORT_NAMES.get(word.strip().upper(), word) for word in words)
