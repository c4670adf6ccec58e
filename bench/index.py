"""Counts the CPU seconds of the index of a workspace folder: the first build, scans, and a file that changed.

    python bench/index.py FOLDER [--files 12000] [--json FILE]

Copies up to so many source files of FOLDER (a site-packages, say) into a project of its own, and asks the index's
process as the language server does. The figures are those of the process, the first with its start; counts say how
many files were looked at (their time and size), checked against the rules, and read.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import typer
from figures import JsonFile, write

from lsp_server.context.index.database import index_file
from lsp_server.context.index.grammars import GRAMMAR_BY_SUFFIX
from lsp_server.context.index.keeper import IndexProcess, IndexRequest

_MOST_BYTES = 512 * 1024


def copy_sources(source: Path, project: Path, most: int) -> list[Path]:
    """Up to so many files of a folder, copied into a project with an ignore file; the copies."""
    project.mkdir()
    (project / "pyproject.toml").touch()
    (project / ".gitignore").write_text("build/\n__pycache__/\n*.py[cod]\n*.log\n/dist\n")
    copied: list[Path] = []
    for parent, _, names in sorted(os.walk(source)):
        for name in sorted(names):
            file = Path(parent, name)
            if len(copied) < most and file.suffix in GRAMMAR_BY_SUFFIX and file.stat().st_size <= _MOST_BYTES:
                copy = project / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
                copied.append(copy)
    return copied


async def measured(project: Path, copies: list[Path]) -> dict[str, Any]:
    """What each step costs the process, in its order."""
    relative = copies[len(copies) // 2].relative_to(project).as_posix()
    steps: dict[str, Any] = {}

    async def step(process: IndexProcess, name: str, request: IndexRequest) -> None:
        answer = await process.ask(request)
        assert answer is not None, "the process failed"
        counts = {key: getattr(answer, key) for key in ("looked_at", "checked", "read", "removed")}
        steps[name] = {"cpu_s": round(answer.cpu_s, 3), **counts}

    async with IndexProcess() as process:
        await step(process, "first build", IndexRequest(str(project), scan="now"))
        await step(process, "scan, nothing changed", IndexRequest(str(project), scan="now"))
        (project / relative).write_text("def changed(): ...\n")
        await step(process, "one changed file", IndexRequest(str(project), (relative,)))
        (project / ".gitignore").write_text("build/\n*.log\n")
        await step(process, "changed ignore file", IndexRequest(str(project), (".gitignore",)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    async with IndexProcess() as process:
        await step(process, "scan in a new process", IndexRequest(str(project), scan="now"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    steps["scan in a new process"]["cpu_s"] = round(spent, 3)
    steps["index"] = {"mb": round(index_file(project).stat().st_size / 1e6, 1)}
    return steps


def main(
    folder: Annotated[Path, typer.Argument(help="A folder with source files.")],
    files: Annotated[int, typer.Option(help="The most files to copy.")] = 12_000,
    json: JsonFile = None,
) -> None:
    """Print what the index of a copy of the folder's sources costs."""
    with tempfile.TemporaryDirectory() as scratch, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": scratch}):
        project = Path(scratch).resolve() / "project"
        copies = copy_sources(folder.resolve(), project, files)
        steps = asyncio.run(measured(project, copies))
    for name, figures in steps.items():
        print(f"{name:<24}" + "  ".join(f"{key} {value}" for key, value in figures.items()))
    write(json, {"files": len(copies), **steps})


if __name__ == "__main__":
    typer.run(main)
