"""The distribution midfill-lab: it fits the midfill that it calls, and needs what midfill does not."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from midfill import commands

ROOT = Path(__file__).parents[2]


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]  # type: ignore[no-any-return]


def test_it_needs_midfill_in_its_own_version() -> None:
    lab, product = project(ROOT / "lab"), project(ROOT)
    assert lab["version"] == product["version"]
    first, *own = lab["dependencies"]
    assert first == f"midfill[engine,torch]=={lab['version']}"
    assert not {*own} & {*product["dependencies"], *product["optional-dependencies"]["engine"]}


def test_the_clone_has_its_commands() -> None:
    wanted = project(ROOT / "lab")["entry-points"]["midfill.commands"]
    assert {entry.name: entry.value for entry in entry_points(group="midfill.commands")} == wanted
    assert sorted(wanted) == sorted(commands._LAB)
