"""The product's tiny checkpoints, and a corpus small enough to train on within a test, of packages made here."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from midfill_lab.recipe.collect import CollectOptions, collect
from midfill_lab.recipe.registries import installed_packages
from midfill_lab.training.corpus import Corpus, write_corpus
from midfill_lab.training.vocabulary import Vocabulary, load_vocabulary, train_tokenizer
from tests.inference.conftest import quick_core, tiny_checkpoint
from tests.lab.packages import install_package, write_module
from tests.midfill.conftest import runtime, tiny_model

__all__ = ["quick_core", "runtime", "tiny_checkpoint", "tiny_model"]  # fixtures of the product's tests

VOCABULARY_SIZE = 400


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site-packages folder: three packages under MIT, one without any licence."""
    root = tmp_path_factory.mktemp("environment")
    for number, name in enumerate(("alpha", "beta", "gamma", "unlicensed")):
        rng = Random(name)
        files = {f"{name}/module_{index}.py": write_module(rng, 30) for index in range(6)}
        install_package(root, name, f"1.{number}", files, "" if name == "unlicensed" else "License-Expression: MIT")
    return root


@pytest.fixture(scope="session")
def corpus_folder(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished corpus with a tokenizer; `gamma` is held out."""
    folder = tmp_path_factory.mktemp("corpus")
    documents, manifest = collect(installed_packages(environment), CollectOptions(hold_out=("gamma",)))
    write_corpus(folder, documents, manifest)
    train_tokenizer((document.text for document in documents["train"]), VOCABULARY_SIZE).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def corpus(corpus_folder: Path) -> Corpus:
    return Corpus(corpus_folder, "train")


@pytest.fixture(scope="session")
def vocabulary(corpus_folder: Path) -> Vocabulary:
    return load_vocabulary(corpus_folder / "tokenizer.json")
