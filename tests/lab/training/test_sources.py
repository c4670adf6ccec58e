from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from midfill_lab.training.sources import Sources, read_sources
from protocol.errors import BadInput
from tests.lab.packages import write_module


def names(sources: Sources) -> set[str]:
    return {file.name for file in (*sources.train, *sources.held_out)}


def reasons(sources: Sources) -> dict[str, str]:
    return {file.path.name: file.reason for file in sources.left_out}


def test_texts_of_any_language_are_kept_and_all_else_is_left_out_with_its_reason(project: Path) -> None:
    found = read_sources([project], 0.2)
    kept = names(found)
    assert {"project/app.js", "project/src/module_0.py", "project/notes/naïve.md"} <= kept
    assert reasons(found) == {
        ".env": ".env in the built-in list of secrets",
        "build.py": "build.py in .gitignore, line 1",
        "logo.png": "binary: contains NUL bytes",
        "latin.py": "not UTF-8 text",
        "bundle.min.js": "has lines like minified code or prose",
        "no_module.py": "identical to another file",
        "generated.py": "says that it was generated",
        ".gitignore": "not a file of 200 to 400,000 bytes",
        "lib.py": "in a folder for copies of other projects",
        "huge.py": "not a file of 200 to 400,000 bytes",
    }
    counts = {"not text": 2, "size": 2}
    once = ("duplicate", "generated", "ignored", "long lines", "secret", "vendored")
    assert found.manifest().dropped == counts | dict.fromkeys(once, 1)
    assert "hunter2" not in "".join(file.text for file in (*found.train, *found.held_out))


def test_what_is_held_out_depends_on_names_alone(project: Path) -> None:
    before = {file.name for file in read_sources([project], 0.2).held_out}
    assert len(before) == 2
    for file in (project / "src").glob("*.py"):
        file.write_text(write_module(Random(f"new {file.name}"), 12))
    assert {file.name for file in read_sources([project], 0.2).held_out} == before


def test_files_of_one_name_in_two_folders_are_all_there(tmp_path: Path) -> None:
    for number in range(4):
        file = tmp_path / str(number) / "src" / "main.py"
        file.parent.mkdir(parents=True)
        file.write_text(write_module(Random(number), 12))
    found = read_sources([tmp_path / str(number) / "src" for number in range(4)], 0.25)
    assert len({file.text for file in (*found.train, *found.held_out)}) == 4


def test_some_file_is_always_held_out_and_some_is_always_trained_on(project: Path) -> None:
    assert len(read_sources([project], 0).held_out) == 1
    two = read_sources([project / "src" / "module_0.py", project / "src" / "module_1.py"], 0.5)
    assert (len(two.train), len(two.held_out)) == (1, 1)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("logo.png", "logo.png cannot be used for training: binary"),
        ("latin.py", "latin.py cannot be used for training: not UTF-8 text"),
        (".env", r"\.env cannot be used for training: .*list of secrets"),
        ("build.py", r"build\.py cannot be used for training: build\.py in \.gitignore"),
        ("missing", "no such folder: .*missing"),
        ("vendor", "at least two files"),
    ],
)
def test_what_was_named_and_cannot_be_used_is_refused_with_the_reason(project: Path, place: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        read_sources([project / place], 0.2)


def test_links_that_lead_to_ignored_files_are_left_out(project: Path) -> None:
    (project / "linked.py").symlink_to(project / "build.py")
    assert "in .gitignore" in reasons(read_sources([project], 0.2))["linked.py"]
