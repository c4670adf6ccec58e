"""Gathers the commands that collect what models learn from, and that read, measure and write models."""

import typer

from inference.training.commands.corpus import download_packages, make_corpus
from inference.training.commands.interchange import make_base, measure_quantizations, write_gguf_file
from inference.training.readable_errors import ReadableErrors

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
app.command("gguf")(write_gguf_file)
app.command("quantizations")(measure_quantizations)
