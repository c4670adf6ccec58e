from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from inference.training.corpus.collect import CollectOptions, collect
from inference.training.corpus.environments import Package, installed_packages
from inference.training.errors import CorpusError
from tests.inference.training.packages import install_package, write_module

MIT = "License-Expression: MIT"


def packages(root: Path, **files: dict[str, str]) -> list[Package]:
    for name, contents in files.items():
        install_package(root, name, "1", contents, MIT)
    return list(installed_packages(root))


def module(seed: int) -> str:
    return write_module(Random(seed), 20)


def test_packages_without_a_permissive_licence_are_refused_and_named(environment: Path) -> None:
    texts, manifest = collect(installed_packages(environment), CollectOptions(hold_out=("gamma",)))
    assert [package.name for package in manifest.of_role("refused")] == ["unlicensed"]
    (unlicensed,) = (package for package in installed_packages(environment) if package.name == "unlicensed")
    forbidden = {file.location.read_text(encoding="utf-8") for file in unlicensed.files}
    assert forbidden.isdisjoint(texts["train"])
    assert forbidden.isdisjoint(texts["held_out"])


def test_held_out_packages_share_no_file_with_training(tmp_path: Path) -> None:
    shared, own = module(1), module(2)
    listed = packages(tmp_path, seen={"seen.py": shared}, held={"held/copy.py": shared, "held/own.py": own})
    texts, manifest = collect(listed, CollectOptions(hold_out=("held",)))
    assert texts["train"] == [shared]
    assert texts["held_out"] == [own]
    assert manifest.dropped == {"duplicate": 1}


def test_a_package_is_held_out_from_every_environment(tmp_path: Path) -> None:
    first = packages(tmp_path / "one", held={"held.py": module(1)}, kept={"kept.py": module(2)})
    second = packages(tmp_path / "two", held={"held.py": module(3)})
    texts, _ = collect(first + second, CollectOptions(hold_out=("held",)))
    assert texts["train"] == [module(2)]
    assert len(texts["held_out"]) == 2


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
    texts, manifest = collect(listed, CollectOptions(hold_out_count=0, package_bytes=limit))
    assert sum(len(text.encode()) for text in texts["train"]) <= limit
    assert manifest.dropped["share of package used up"] == 3


def test_tests_take_a_smaller_share(tmp_path: Path) -> None:
    files = {f"pkg/tests/test_{index}.py": module(index) for index in range(3)} | {"pkg/code.py": module(9)}
    texts, _ = collect(
        packages(tmp_path, pkg=files),
        CollectOptions(hold_out_count=0, package_bytes=10 * len(module(9)), test_share=0.15),
    )
    assert len(texts["train"]) == 2


def test_vendored_files_are_dropped(tmp_path: Path) -> None:
    files = {"pkg/code.py": module(1), "pkg/_vendor/other.py": module(2)}
    texts, manifest = collect(packages(tmp_path, pkg=files), CollectOptions(hold_out_count=0))
    assert texts["train"] == [module(1)]
    assert manifest.dropped == {"vendored": 1}


def test_a_package_to_hold_out_has_to_be_there(environment: Path) -> None:
    with pytest.raises(CorpusError, match="nowhere"):
        collect(installed_packages(environment), CollectOptions(hold_out=("nowhere",)))


def test_a_corpus_of_nothing_is_an_error(tmp_path: Path) -> None:
    install_package(tmp_path, "secret", "1", {"secret.py": module(1)})
    with pytest.raises(CorpusError, match="none of 1 packages"):
        collect(installed_packages(tmp_path), CollectOptions())
