"""The command `midfill train`."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from midfill.console import open_console
from midfill.options import takes_options
from midfill_lab.training.arguments import TrainArguments

STOPPED = 130  # as a shell has it for what Ctrl-C ended


@takes_options
def command(
    folders: Annotated[
        list[Path], typer.Argument(help="Source files, folders of them, or a collected corpus.", show_default=False)
    ],
    output: Annotated[Path, typer.Option(help="Folder for data, checkpoints, log and model.")],
    arguments: TrainArguments,
) -> None:
    """Train a model with fragment tokenization on your own files.

    Trains a new model, or a checkpoint (--from), all of it or adapters (--lora). Ctrl-C finishes the step and saves;
    the same command continues the run. A second Ctrl-C ends it at once.
    """
    # accelerate imports torchao if it is installed, which warns of kernels that training does not use.
    for library in ("torchao", "torch.utils._pytree"):
        logging.getLogger(library).setLevel(logging.ERROR)
    from midfill_lab.training.data import DataOptions, trainable
    from midfill_lab.training.run import Request, train

    training = arguments.options()
    start = trainable(arguments.start, output.resolve())
    training = replace(training, start=start)

    data = DataOptions(
        tuple(str(folder.resolve()) for folder in folders),
        arguments.held_out,
        start,
        arguments.fim_format,
        arguments.add_fim_markers,
        arguments.vocabulary_size,
    )
    if not train(Request(output.resolve(), data, training, arguments), open_console()):
        raise typer.Exit(STOPPED)
