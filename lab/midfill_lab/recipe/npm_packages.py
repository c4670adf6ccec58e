"""Reads unpacked npm packages as named, licensed sets of the source files that people wrote."""

import json
from pathlib import Path, PurePath
from typing import Any

from midfill_lab.recipe.environments import Package, SourceFile
from midfill_lab.recipe.licences import Licence, judge_expression
from midfill_lab.training.corpus.languages import WEB
from midfill_lab.training.errors import CorpusError

_TYPESCRIPT = frozenset({".ts", ".tsx", ".mts", ".cts"})
_BUILT = frozenset(
    {
        "dist", "build", "umd", "esm", "cjs", "es", "es5", "es6", "es2015", "amd", "bundle", "bundles", "out", "output",
        "lib-esm", "lib-commonjs", "dist-src", "fesm2022", "_esm", "_cjs", "_types", "lib.esm", "lib.commonjs", "types",
        "node_modules",
    }
)  # fmt: skip


def npm_package(folder: Path) -> Package:
    """The package that is unpacked in `folder`.

    Raises:
        CorpusError: it has no readable package.json.
    """
    try:
        note: dict[str, Any] = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        name, version = str(note["name"]), str(note["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{folder} is no npm package: {error}") from error
    return Package(f"npm/{name}", version, _licence(note), _source_files(folder))


def _licence(note: dict[str, Any]) -> Licence:
    """The licence by its SPDX expression; older forms name a type, or several of which one may be chosen."""
    stated = note.get("license", note.get("licenses"))
    if isinstance(stated, dict):
        stated = stated.get("type")
    if isinstance(stated, list):
        stated = " OR ".join(str(one.get("type") if isinstance(one, dict) else one) for one in stated)
    return judge_expression(str(stated)) if stated else Licence("unknown", permitted=False)


def _source_files(folder: Path) -> tuple[SourceFile, ...]:
    """The package's files, without declarations, minified and built ones; TypeScript, where its JavaScript is there."""
    paths = [(path, path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.suffix in WEB]
    written = [SourceFile(path, relative) for path, relative in paths if path.is_file() and not _is_built(relative)]
    if any(file.path.suffix in _TYPESCRIPT for file in written):
        written = [file for file in written if file.path.suffix in _TYPESCRIPT]
    return tuple(written)


def _is_built(path: PurePath) -> bool:
    if not _BUILT.isdisjoint(path.parts[:-1]):
        return True
    return any(mark in path.name for mark in (".d.", ".min.", "-min.", ".bundle.", ".umd.", ".production."))
