from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from midfill_lab.recipe.collect import CollectOptions, Decontamination, collect
from midfill_lab.recipe.registries import Package, SourceFile, installed_packages
from midfill_lab.training.corpus import Document, Split
from midfill_lab.training.options import CorpusError
from tests.lab.packages import install_package, write_module

MIT = "License-Expression: MIT"


def packages(root: Path, **files: dict[str, str]) -> list[Package]:
    for name, contents in files.items():
        install_package(root, name, "1", contents, MIT)
    return list(installed_packages(root))


def texts_of(documents: dict[Split, Sequence[Document]], split: Split) -> list[str]:
    return [document.text for document in documents[split]]


def module(seed: int) -> str:
    return write_module(Random(seed), 20)


def test_packages_without_a_permissive_licence_are_refused_and_named(environment: Path) -> None:
    documents, manifest = collect(installed_packages(environment), CollectOptions(hold_out=("gamma",)))
    assert [package.name for package in manifest.of_role("refused")] == ["unlicensed"]
    (unlicensed,) = (package for package in installed_packages(environment) if package.name == "unlicensed")
    forbidden = {file.location.read_text(encoding="utf-8") for file in unlicensed.files}
    assert forbidden.isdisjoint(texts_of(documents, "train"))
    assert forbidden.isdisjoint(texts_of(documents, "held_out"))


def test_held_out_packages_share_no_file_with_training(tmp_path: Path) -> None:
    shared, own = module(1), module(2)
    listed = packages(tmp_path, seen={"seen.py": shared}, held={"held/copy.py": shared, "held/own.py": own})
    documents, manifest = collect(listed, CollectOptions(hold_out=("held",)))
    assert texts_of(documents, "train") == [shared]
    assert texts_of(documents, "held_out") == [own]
    assert manifest.dropped == {"duplicate": 1}


def test_a_package_is_held_out_from_every_environment(tmp_path: Path) -> None:
    first = packages(tmp_path / "one", held={"held.py": module(1)}, kept={"kept.py": module(2)})
    second = packages(tmp_path / "two", held={"held.py": module(3)})
    documents, _ = collect(first + second, CollectOptions(hold_out=("held",)))
    assert texts_of(documents, "train") == [module(2)]
    assert len(texts_of(documents, "held_out")) == 2


def test_the_choice_of_held_out_packages_does_not_depend_on_the_order(environment: Path) -> None:
    options = CollectOptions(hold_out_count=1, medium_bytes=(1000, 10**6))
    listed = list(installed_packages(environment))
    chosen = [collect(order, options)[1].of_role("held_out") for order in (listed, listed[::-1])]
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 1


def test_no_package_takes_more_than_its_share_over_all_environments(tmp_path: Path) -> None:
    files = {f"big/module_{index}.py": module(index) for index in range(4)}
    listed = packages(tmp_path / "one", big=files) + packages(tmp_path / "two", big={"big/more.py": module(9)})
    limit = 2 * max(len(text.encode()) for text in files.values())
    documents, manifest = collect(listed, CollectOptions(hold_out_count=0, package_bytes=limit))
    assert sum(len(text.encode()) for text in texts_of(documents, "train")) <= limit
    assert manifest.dropped["share of package used up"] == 3


def test_tests_take_a_smaller_share(tmp_path: Path) -> None:
    files = {f"pkg/tests/test_{index}.py": module(index) for index in range(3)} | {"pkg/code.py": module(9)}
    documents, _ = collect(
        packages(tmp_path, pkg=files), CollectOptions(hold_out_count=0, package_bytes=10 * len(module(9)), test_share=0.15)
    )
    assert len(texts_of(documents, "train")) == 2


def test_vendored_files_are_dropped(tmp_path: Path) -> None:
    files = {"pkg/code.py": module(1), "pkg/_vendor/other.py": module(2)}
    documents, manifest = collect(packages(tmp_path, pkg=files), CollectOptions(hold_out_count=0))
    assert texts_of(documents, "train") == [module(1)]
    assert manifest.dropped == {"vendored": 1}


def test_a_package_to_hold_out_has_to_be_there(environment: Path) -> None:
    with pytest.raises(CorpusError, match="nowhere"):
        collect(installed_packages(environment), CollectOptions(hold_out=("nowhere",)))


def test_a_corpus_of_nothing_is_an_error(tmp_path: Path) -> None:
    install_package(tmp_path, "secret", "1", {"secret.py": module(1)})
    with pytest.raises(CorpusError, match="none of 1 packages"):
        collect(installed_packages(tmp_path), CollectOptions())


def test_other_languages_take_a_smaller_share(tmp_path: Path) -> None:
    (package,) = packages(tmp_path, pkg={f"pkg/{index}.go": module(index) for index in range(4)})
    files = tuple(SourceFile(path, path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*.go")))
    options = CollectOptions(hold_out_count=0, package_bytes=10 * len(module(0)), other_share=0.25)
    documents, manifest = collect([replace(package, files=files)], options)
    assert len(documents["train"]) == 2
    assert manifest.dropped == {"share of package used up": 2}


def test_files_with_text_of_a_benchmark_are_dropped(tmp_path: Path) -> None:
    lines = module(1).splitlines(keepends=True)
    task = {"prompt": "".join(lines[:6]), "canonical_solution": lines[6], "suffix": "".join(lines[7:9])}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    listed = packages(tmp_path / "site", pkg={"copy.py": "import os\n" + module(1), "own.py": module(2)})
    documents, manifest = collect(listed, CollectOptions(hold_out_count=0), Decontamination([tmp_path / "tasks.jsonl"]))
    assert texts_of(documents, "train") == [module(2)]
    assert manifest.dropped == {"text of a benchmark": 1}


def test_a_copyleft_notice_counts_more_than_the_metadata(tmp_path: Path) -> None:
    notice = "# This file is free software under the GNU General Public License.\n"
    listed = packages(tmp_path, pkg={"free.py": notice + module(1), "own.py": module(2)})
    documents, manifest = collect(listed, CollectOptions(hold_out_count=0))
    assert texts_of(documents, "train") == [module(2)]
    assert manifest.dropped == {"copyleft notice": 1}
