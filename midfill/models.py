"""The command `midfill models`: the models that `--model` takes, on this machine and to download."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text

from midfill.console import open_console
from protocol.messages import megabytes
from protocol.settings import Settings

_CANCELLED = 130  # as a shell reports a command that Ctrl+C ended


def models_command(
    settings: Settings,
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the models as a JSON array.")] = False,
) -> None:
    """List the models on this machine: midfill's own, and those of Ollama, LM Studio, llama.cpp and Hugging Face.

    Reads the metadata of their files alone, and uses no network. Behind them stand some that `midfill models download`
    fetches. --model takes the names as they are printed.
    """
    if context.invoked_subcommand is not None:
        return
    from inference.loading.choices import choices
    from inference.loading.options import find_gpus

    found = choices(settings, find_gpus())
    if as_json:
        typer.echo(json.dumps([choice.as_json() for choice in found], indent=2, ensure_ascii=False))
        return
    console = open_console()
    for choice in found:
        where = choice.model.source if choice.here else "to download"
        console.print(Text.assemble((choice.model.name, "bold"), " ", (where, "bright_black")), soft_wrap=True)
        for line in filter(None, [choice.summary, choice.problem and f"cannot run: {choice.problem}"]):
            console.print(Text(f"  {line}"), soft_wrap=True)


def download_command(
    name: Annotated[str, typer.Argument(help="OWNER/NAME on the Hugging Face hub, or OWNER/NAME:QUANTIZATION.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print progress and result as lines of JSON.")] = False,
) -> None:
    """Download a model from the Hugging Face hub into its cache, and check it; --model then takes the same name.

    A repository with GGUF files alone needs a quantization, as in OWNER/NAME:Q4_K_M. Ctrl+C keeps what has arrived:
    the same command goes on from there.
    """
    from inference.checkpoints.hub import WANTED_FILES, download, look_up
    from inference.loading.choices import download_reporting

    if as_json:
        download_reporting(name, lambda line: typer.echo(json.dumps(line, ensure_ascii=False)))
        return
    try:
        found = look_up(name, WANTED_FILES)
        typer.echo(f"{found.name}: {megabytes(found.size)}, licence: {found.licence or 'none named'}", err=True)
        with _bar() as bar:
            task = bar.add_task("")
            path = download(name, lambda done, total: bar.update(task, completed=done, total=total), WANTED_FILES)
    except KeyboardInterrupt:
        typer.echo(f"midfill: stopped; `midfill models download {name}` goes on from there", err=True)
        raise typer.Exit(_CANCELLED) from None
    typer.echo(path)


def _bar() -> Progress:
    """A bar on stderr, drawn where that is a terminal."""
    share = TextColumn("{task.percentage:.0f} %")
    columns = (share, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=open_console(stderr=True))
