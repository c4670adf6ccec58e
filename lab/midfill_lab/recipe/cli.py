"""Gathers the commands that collect what models learn from, and that read, measure and write models."""

from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from midfill_lab.recipe.corpus_commands import download_packages, make_corpus
from midfill_lab.recipe.model_commands import (
    average,
    make_base,
    measure_quantizations,
    pack_folder,
    unpack_folder,
    write_gguf_file,
)
from protocol.errors import BadInput


class ReadableErrors(TyperGroup):
    """Commands that print errors of bad input, without a traceback, and exit with status 2."""

    def invoke(self, ctx: Any) -> Any:  # typer's own copy of click has no public name
        try:
            return super().invoke(ctx)
        except BadInput as error:
            Console(stderr=True).print(f"error: {error}", markup=False, style="red")
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=ReadableErrors,
    help="Collect a corpus, and convert models: what `midfill train` starts from, and what becomes of its result.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

app.command("download")(download_packages)
app.command("corpus")(make_corpus)
app.command("base")(make_base)
app.command("average")(average)
app.command("gguf")(write_gguf_file)
app.command("quantizations")(measure_quantizations)
app.command("pack")(pack_folder)
app.command("unpack")(unpack_folder)
