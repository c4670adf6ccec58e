"""The commands of `python -m midfill_lab.recipe`: collecting what models learn from, and converting models."""

import logging
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.progress import track
from rich.table import Table
from typer.core import TyperGroup

from midfill_lab.recipe.collect import CollectOptions, Decontamination, collect
from midfill_lab.recipe.registries import (
    LISTS,
    REGISTRIES,
    Package,
    debian_package,
    default_environments,
    download,
    folder_of,
    installed_packages,
    npm_package,
    read_list,
    standard_library,
    unpack_downloads,
)
from midfill_lab.training.corpus import Corpus, Manifest, family_of, write_corpus
from midfill_lab.training.options import CorpusError, OptionError
from protocol.errors import BadInput

MAX_NAMED = 10
LISTS_HELP = "Folder with the lists of packages, pypi.txt, npm.txt and debian.txt. [default: of the bundled model]"


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


def download_packages(
    downloads: Annotated[Path, typer.Argument(help="The folder for the packages and their unpacked source.")],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Go on without packages that can no longer be had.")
    ] = False,
    lists: Annotated[Path, typer.Option(help=LISTS_HELP, show_default=False)] = LISTS,
) -> None:
    """Download the pinned packages of PyPI, npm and Debian (lab/midfill_lab/recipe/packages), and unpack their source.

    Uses pip, npm and apt-get, none as root and none with the packages' own scripts.
    """
    console = Console()
    for registry in REGISTRIES:
        if not (pinned := read_list(registry, lists)):
            continue
        download(registry, pinned, downloads / registry)
        missing = unpack_downloads(registry, pinned, downloads / registry, downloads / "unpacked" / registry)
        console.print(f"{registry}: {len(pinned) - len(missing)} of {len(pinned)} packages", highlight=False)
        if missing and not allow_missing:
            names = ", ".join(f"{package.name} {package.version}" for package in missing[:MAX_NAMED])
            raise CorpusError(f"{len(missing)} packages of {registry} cannot be had ({names}); --allow-missing")


def make_corpus(
    corpus: Annotated[Path, typer.Argument(help="Folder of the corpus.")],
    downloads: Annotated[
        Path | None, typer.Option(help="Collect what `download` put into this folder, instead of environments.")
    ] = None,
    lists: Annotated[Path, typer.Option(help=LISTS_HELP, show_default=False)] = LISTS,
    environment: Annotated[
        list[Path] | None, typer.Option(help="A site-packages folder; repeatable. Default: this interpreter's.")
    ] = None,
    standard: Annotated[
        bool, typer.Option("--standard-library/--no-standard-library", help="Include the standard library.")
    ] = True,
    hold_out: Annotated[
        list[str] | None, typer.Option(help="Package to hold out; repeatable. Default: chosen by name hash.")
    ] = None,
    hold_out_count: Annotated[int, typer.Option(help="Number of packages to hold out if none is named.")] = 6,
    package_megabytes: Annotated[float, typer.Option(help="Limit per package, in MB.")] = 8.0,
    other_share: Annotated[
        float, typer.Option(help="The most of that for other languages than Python and JavaScript, as a share.")
    ] = 1.0,
    benchmark: Annotated[
        list[Path] | None, typer.Option(help="JSON lines of HumanEval, whose text is left out; repeatable.")
    ] = None,
) -> None:
    """Collect the source of permissively licensed packages: installed ones (Python), or downloaded ones."""
    benchmarks = Decontamination(benchmark or [])
    packages: list[Package] = [standard_library()] if standard else []
    held_out: list[str] = [canonicalize_name(name) for name in hold_out or ()]
    if downloads is not None:
        found, marked = _downloaded(downloads, lists)
        packages += found
        held_out += marked
    for folder in environment or (() if downloads is not None else default_environments()):
        packages += installed_packages(folder)
    options = CollectOptions(tuple(held_out), hold_out_count, round(package_megabytes * 1e6), other_share=other_share)
    documents, manifest = collect(packages, options, benchmarks)
    write_corpus(corpus, documents, manifest)
    _print_manifest(Console(), corpus, manifest)


def _downloaded(downloads: Path, lists: Path) -> tuple[list[Package], list[str]]:
    """The unpacked packages, and the names of those to hold out."""
    if not (downloads / "unpacked").is_dir():
        raise CorpusError(f"no downloaded packages in {downloads}: run `python -m midfill_lab.recipe download` first")
    unpacked = {registry: downloads / "unpacked" / registry for registry in REGISTRIES}
    pypi, npm, debian = (read_list(registry, lists) for registry in REGISTRIES)
    npm = tuple(pinned for pinned in npm if (folder_of(unpacked["npm"], pinned) / "package.json").is_file())
    debian = tuple(pinned for pinned in debian if folder_of(unpacked["debian"], pinned).is_dir())
    packages = list(installed_packages(unpacked["pypi"])) if unpacked["pypi"].is_dir() else []
    packages += [npm_package(folder_of(unpacked["npm"], pinned)) for pinned in npm]
    packages += [debian_package(folder_of(unpacked["debian"], pinned), pinned) for pinned in debian]
    held_out: list[str] = [canonicalize_name(pinned.name) for pinned in pypi if pinned.held_out]
    held_out += [f"npm/{pinned.name}" for pinned in npm if pinned.held_out]
    held_out += [f"debian/{pinned.name}" for pinned in debian if pinned.held_out]
    return packages, held_out


def _print_manifest(console: Console, corpus: Path, manifest: Manifest) -> None:
    for role in ("train", "held_out"):
        packages = manifest.of_role(role)
        files, size = sum(package.files for package in packages), sum(package.bytes for package in packages)
        console.print(f"{role}: {len(packages)} packages, {files:,} files, {size / 1e6:.1f} MB")
        split = Corpus(corpus, "train" if role == "train" else "held_out")
        sizes = Counter[str]()
        for path, count in zip(split.paths, split.boundaries[1:] - split.boundaries[:-1], strict=True):
            sizes[family_of(path)] += int(count)
        console.print("  " + ", ".join(f"{name} {count / 1e6:.1f} MB" for name, count in sizes.most_common()))
    console.print("held out: " + ", ".join(package.name for package in manifest.of_role("held_out")), markup=False)
    for package in manifest.of_role("refused"):
        console.print(f"refused: {package.name}, licence {package.licence}", markup=False)


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
    from midfill_lab.training.from_gguf import read_base

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
    from midfill_lab.recipe.weights import average_models

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
        from midfill_lab.recipe.weights import Layers, calibrated_rounding

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
    from midfill_lab.recipe.weights import quantization_losses
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


app.command("download")(download_packages)
app.command("corpus")(make_corpus)
app.command("base")(make_base)
app.command("average")(average)
app.command("gguf")(write_gguf_file)
app.command("quantizations")(measure_quantizations)
app.command("pack")(pack_folder)
app.command("unpack")(unpack_folder)

if __name__ == "__main__":
    app()
