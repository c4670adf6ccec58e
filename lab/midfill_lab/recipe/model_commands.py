"""Owns the commands that convert models: `base` and `gguf` read and write GGUF files, `average` merges folders.

`pack` and `unpack` take models and corpora through transfers of limited size; `quantizations` measures what the types
of a GGUF file cost.
"""

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from midfill_lab.training.errors import OptionError


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
    from midfill_lab.training.interchange.from_gguf import read_base

    try:
        ids = tuple(int(word) for word in reserved.split(",") if word)
    except ValueError as error:
        raise OptionError(f"--reserved {reserved} is not of the form ID,ID,ID") from error
    read_base(file, folder, ids)
    Console().print(f"The model: {folder}", soft_wrap=True)


def average(
    output: Annotated[Path, typer.Argument(help="The folder to write.")],
    models: Annotated[list[str], typer.Argument(help="Model folders, each with its share of the mean: FOLDER=SHARE.")],
) -> None:
    """Average the weights of models that were trained from one another."""
    from midfill_lab.recipe.averaging import average_models

    shares: dict[Path, float] = {}
    for model in models:
        folder, _, share = model.rpartition("=")
        try:
            shares[Path(folder)] = float(share)
        except ValueError as error:
            raise OptionError(f"{model} is not of the form FOLDER=SHARE") from error
    average_models(shares, output)
    Console().print(f"The model: {output}", soft_wrap=True)


def write_gguf_file(
    model: Annotated[str, typer.Argument(help='"tiny" or a folder of the Llama family.')],
    file: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
    matrices: Annotated[str, typer.Option(help="Type of the matrices, such as q4_0; bf16 quantizes nothing.")] = "q4_0",
    embeddings: Annotated[str, typer.Option(help="Type of the embedding and of the output layer.")] = "q8_0",
    licence: Annotated[str, typer.Option(help="SPDX identifier, for the file's metadata.")] = "",
    calibrate: Annotated[
        Path | None, typer.Option(help="Corpus to calibrate the rounding to 4 or 5 bits on (GPTQ): it loses less.")
    ] = None,
    windows: Annotated[int, typer.Option(min=1, help="With --calibrate: how many windows of 512 tokens to use.")] = 64,
) -> None:
    """Write a model folder as a GGUF file."""
    from midfill_lab.recipe.to_gguf import write_gguf
    from midfill_lab.training.options import Quantization

    quantization = None if matrices == "bf16" else Quantization(matrices, embeddings)
    rounded = None
    if calibrate is not None:
        if quantization is None:
            raise OptionError("--calibrate needs a type of 4 or 5 bits, and --matrices is bf16")
        from midfill_lab.recipe.calibrated_rounding import Layers, calibrated_rounding

        def tracked(layers: Layers) -> Layers:
            return track(list(layers), "Rounding layers", console=Console(stderr=True))

        rounded = calibrated_rounding(model, calibrate, quantization, windows=windows, tracked=tracked)
    write_gguf(model, file, quantization, licence=licence, rounded=rounded)
    Console().print(f"{file}, {file.stat().st_size:,} bytes", soft_wrap=True, highlight=False)


def measure_quantizations(
    model: Annotated[str, typer.Argument(help="A model's folder.")],
    corpus: Annotated[Path, typer.Argument(help="The corpus whose held-out split is measured on.")],
    types: Annotated[
        str, typer.Option(help="MATRICES:EMBEDDINGS,...")
    ] = "q4_0:q5_0,q4_0:q8_0,q4_1:q4_1,q4_1:q5_1,q5_0:q5_0,q8_0:q8_0",
    samples: Annotated[int, typer.Option(min=1, help="Held-out examples.")] = 24,
    window: Annotated[int, typer.Option(min=64, help="Tokens in an example.")] = 256,
) -> None:
    """Measure sizes and held-out losses of a model under several GGUF types."""
    from midfill_lab.recipe.quantization_losses import quantization_losses
    from midfill_lab.training.options import Quantization

    pairs = [one.split(":") for one in types.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise OptionError(f"--types {types} is not of the form MATRICES:EMBEDDINGS,...")
    table = Table("matrices", "embeddings", "MB", title="held-out nats per byte, whole / in fragments")
    choices = [None, *(Quantization(*pair) for pair in pairs)]
    for row in quantization_losses(model, corpus, choices, samples=samples, window=window):
        if not table.rows:
            for loss in row.losses:
                table.add_column(loss.layout, justify="right")
        named = (row.quantization.matrices, row.quantization.embeddings) if row.quantization else ("as it is", "")
        measured = (f"{loss.whole:.4f} / {loss.fragments:.4f}" for loss in row.losses)
        table.add_row(*named, f"{row.num_bytes / 1e6:.1f}", *measured)
    Console(width=180).print(table)


def pack_folder(
    folder: Annotated[Path, typer.Argument(help="The folder: a model, a corpus, or any other.")],
    parts: Annotated[Path, typer.Argument(help="An empty folder for the parts and their index.")],
    part_mib: Annotated[float, typer.Option(min=0.001, help="The most MiB of a part.")] = 16.0,
) -> None:
    """Pack a folder into parts of limited size, with checksums: weights by their bytes, all else as text."""
    from midfill_lab.recipe.parts import INDEX, pack

    index = pack(folder, parts, int(part_mib * 2**20))
    before = sum(file.bytes for file in index.files)
    after = sum(part.bytes for part in index.parts) + (parts / INDEX).stat().st_size
    told = f"{len(index.files)} files, {before:,} bytes: {len(index.parts)} parts, {after:,} bytes"
    Console().print(f"{told} ({after / max(1, before):.1%})", soft_wrap=True, highlight=False)


def unpack_folder(
    parts: Annotated[Path, typer.Argument(help="A folder with all parts and their index.")],
    folder: Annotated[Path, typer.Argument(help="The folder to restore.")],
) -> None:
    """Restore a folder from its parts; each file is checked."""
    from midfill_lab.recipe.parts import unpack

    index = unpack(parts, folder)
    Console().print(f"{len(index.files)} files in {folder}", soft_wrap=True, highlight=False)
