"""The documents: the lab's commands that they show exist, with their options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from midfill.commands import app as midfill
from midfill_lab.recipe.__main__ import app as recipe

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", *ROOT.glob("inference/models/*/README.md")])
GROUPS = {"python -m midfill_lab.recipe": recipe, "midfill": midfill}
SHOWN = re.compile(rf"(?m)^(?:\$ )?({'|'.join(map(re.escape, GROUPS))}) ((?:.*\\\n)*.*)$")


def shown() -> Iterator[tuple[str, str, str]]:
    """Program, subcommand and each of its options, as the documents' blocks of code have them."""
    for document in DOCUMENTS:
        for block in re.findall(r"(?ms)^```\w*\n(.*?)^```", document.read_text(encoding="utf-8")):
            for program, rest in SHOWN.findall(block):
                name, *words = shlex.split(rest.replace("\\\n", " "), comments=True)
                if program != "midfill" or name in ("train", "eval"):
                    yield from ((program, name, word.partition("=")[0]) for word in ["--help", *words] if word[:2] == "--")


@pytest.mark.parametrize(("program", "name"), sorted({row[:2] for row in shown()}))
def test_a_command_has_the_options_that_are_shown(program: str, name: str) -> None:
    command: Any = typer.main.get_command(GROUPS[program]).get_command(None, name)  # type: ignore[attr-defined]
    assert command is not None
    known = {"--help", *(option for one in command.params for option in (*one.opts, *one.secondary_opts))}
    assert {option for *whose, option in shown() if whose == [program, name]} - known == set()


def test_all_commands_of_the_recipe_are_shown() -> None:
    names = {name for program, name, _ in shown() if program != "midfill"}
    assert names == {command.name for command in recipe.registered_commands}
