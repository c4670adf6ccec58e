"""The command `midfill models`: the models on this machine that `--model` takes."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from protocol.settings import Settings


def models_command(
    settings: Settings,
    as_json: Annotated[bool, typer.Option("--json", help="Print the models as a JSON array.")] = False,
) -> None:
    """List the models on this machine: midfill's own, and those of Ollama, LM Studio, llama.cpp and Hugging Face.

    Reads the metadata of their files alone. --model takes the names as they are printed.
    """
    from midfill.doctor.machine import find_gpus
    from midfill.doctor.models import choices

    found = choices(settings, find_gpus())
    if as_json:
        typer.echo(json.dumps([choice.as_json() for choice in found], indent=2, ensure_ascii=False))
        return
    console = Console()
    for choice in found:
        title = Text.assemble((choice.model.name, "bold"), " ", (choice.model.source, "bright_black"))
        console.print(title, soft_wrap=True)
        for line in filter(None, [choice.summary, choice.problem and f"cannot run: {choice.problem}"]):
            console.print(Text(f"  {line}"), soft_wrap=True)
