"""Owns the commands `download` and `corpus`."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from packaging.utils import canonicalize_name
from rich.console import Console

from midfill_lab.recipe.collect import CollectOptions, collect
from midfill_lab.recipe.debian_packages import debian_package
from midfill_lab.recipe.decontamination import Decontamination
from midfill_lab.recipe.downloads import download, folder_of, unpack
from midfill_lab.recipe.environments import (
    Package,
    default_environments,
    installed_packages,
    standard_library,
)
from midfill_lab.recipe.npm_packages import npm_package
from midfill_lab.recipe.package_lists import LISTS, REGISTRIES, read_list
from midfill_lab.training.corpus.corpus import Corpus, Manifest, write_corpus
from midfill_lab.training.corpus.languages import family_of
from midfill_lab.training.errors import CorpusError

MAX_NAMED = 10
LISTS_HELP = "Folder with the lists of packages, pypi.txt, npm.txt and debian.txt. [default: of the bundled model]"


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
        missing = unpack(registry, pinned, downloads / registry, downloads / "unpacked" / registry)
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
