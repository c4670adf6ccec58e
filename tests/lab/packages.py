"""Writes installed packages, and Python modules to put into them."""

from __future__ import annotations

from pathlib import Path
from random import Random

_NOUNS = ("cache", "anchor", "buffer", "cursor", "window", "prefix", "suffix", "token", "parser", "reader", "naïve")


def write_module(rng: Random, functions: int) -> str:
    """A module of small functions; modules of different `rng` have next to no line in common."""
    return '"""A module."""\n\n\n' + "\n\n".join(_function(rng) for _ in range(functions))


def install_package(root: Path, name: str, version: str, files: dict[str, str], metadata: str = "") -> None:
    """Put files, by their paths in the environment, under `root` with the metadata of an installed package."""
    info = root / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    header = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(header + (metadata + "\n" if metadata else ""), encoding="utf-8")
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files), encoding="utf-8")


def _function(rng: Random) -> str:
    noun, other, number = rng.choice(_NOUNS), rng.choice(_NOUNS), rng.randrange(10**6)
    return (
        f"def read_{noun}_{number}({other}, limit={number % 97}):\n"
        f"    if {other} is None and limit > {number}:\n"
        f'        raise ValueError("no {noun} of {number} in {other}")\n'
        f"    return [{noun} for {noun} in {other}.values() if {noun} != {number}]\n"
    )
