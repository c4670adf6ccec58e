"""Owns the commands `base` and `gguf`, which read a model from a GGUF file and write one."""

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from inference.training.errors import OptionError
from inference.training.told_errors import told_errors


def make_base(
    file: Annotated[Path, typer.Argument(help="A GGUF file of the Llama family.")],
    folder: Annotated[Path, typer.Argument(help="The model's folder, for `midfill train --from`.")],
    reserved: Annotated[
        str, typer.Option(help="Ids of three special tokens that were never trained; they become FIM markers.")
    ] = "",
) -> None:
    """Make a folder to train from of a GGUF file."""
    for library in ("torchao", "torch.utils._pytree"):  # they warn of kernels that are not used here
        logging.getLogger(library).setLevel(logging.ERROR)
    from inference.training.interchange.from_gguf import read_base

    with told_errors():
        try:
            ids = tuple(int(word) for word in reserved.split(",") if word)
        except ValueError as error:
            raise OptionError(f"--reserved {reserved} is not of the form ID,ID,ID") from error
        read_base(file, folder, ids)
        Console().print(f"The model: {folder}", soft_wrap=True)


def write_gguf_file(
    model: Annotated[str, typer.Argument(help='"bundled" or a folder of the Llama family.')],
    file: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
    matrices: Annotated[str, typer.Option(help="Type of the matrices, such as q4_0; bf16 quantizes nothing.")] = "q4_0",
    embeddings: Annotated[str, typer.Option(help="Type of the embedding and of the output layer.")] = "q8_0",
    licence: Annotated[str, typer.Option(help="SPDX identifier, for the file's metadata.")] = "",
) -> None:
    """Write a model folder as a GGUF file."""
    from inference.training.interchange.to_gguf import write_gguf
    from inference.training.options import Quantization

    with told_errors():
        quantization = None if matrices == "bf16" else Quantization(matrices, embeddings)
        write_gguf(model, file, quantization, licence=licence)
        Console().print(f"{file}, {file.stat().st_size:,} bytes", soft_wrap=True, highlight=False)
