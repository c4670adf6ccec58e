"""`midfill eval` from the command line, with a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from inference.loading.options import EngineOptions
from midfill.commands import app
from midfill_lab.evaluation.command import _json_lines
from protocol.errors import BadInput
from tests.inference.serving import TOKEN, serving

DATA = Path(__file__).with_name("data")
KEYS = ["benchmark", "split", "format", "cut", "healing", "n", "exact_match", "pass_at_1", "edit_similarity"]


Rows = Callable[..., tuple[list[dict[str, object]], str]]


@pytest.fixture
def rows(tiny_model: str, runtime: Path) -> Rows:
    """Runs the command: the rows that it writes to stdout, and what it says on stderr."""

    def run(*arguments: str, limit: int = 2, tasks: tuple[str, ...] = ("--human-eval", str(DATA))) -> Any:
        given = ["--model", tiny_model, *tasks, "--limit", str(limit), "--max-new-tokens", "4", *arguments]
        result = CliRunner().invoke(app, ["eval", "--json", "-", *given], catch_exceptions=False)
        assert result.exit_code == 0
        return [json.loads(line) for line in result.stdout.splitlines()], result.stderr

    return run


def test_a_row_per_split_cut_and_format(rows: Rows) -> None:
    found, said = rows("--cut", "given,character", "--format", "psm,efim", "--allow-code-execution", "--without-sandbox")
    assert [(row["split"], row["cut"], row["format"]) for row in found] == [
        (split, cut, form)
        for split in ("single-line", "random-span")
        for cut in ("given", "character")
        for form in ("psm", "efim")
    ]
    for row in found:
        assert list(row)[: len(KEYS)] == KEYS
        assert row["n"] == 2
        assert row["pass_at_1"] is not None
        assert row["healing"] is False
    assert "runs generated code" in said


def test_no_code_is_run_unless_it_is_allowed(rows: Rows) -> None:
    found, said = rows("--split", "single-line", "--format", "spm", limit=1)
    assert [row["pass_at_1"] for row in found] == [None]
    assert [row["exact_match"] for row in found] == [0.0]
    assert "--allow-code-execution" in said


def test_a_core_by_its_address_gives_the_same_rows(rows: Rows, tiny_model: str) -> None:
    here, _ = rows("--format", "efim")
    with serving(EngineOptions(tiny_model, threads=1)) as served:
        there, _ = rows("--format", "efim", "--core", f"ws://{served.address}/ws", "--core-token", TOKEN)
    assert [row | {"model": "", "healing": None} for row in there] == [row | {"model": "", "healing": None} for row in here]
    assert {row["healing"] for row in there} == {None}


@pytest.mark.parametrize(("given", "heals"), [("on", True), ("off", False)])
def test_healing_is_chosen_and_told(rows: Rows, given: str, heals: bool) -> None:
    found, _ = rows("--split", "single-line", "--format", "efim", "--healing", given, limit=1)
    assert [row["healing"] for row in found] == [heals]


def test_held_out_files_need_no_permission(rows: Rows) -> None:
    tasks = ("--held-out", str(Path(__file__).parents[3] / "protocol"))
    found, said = rows("--format", "efim", "--prefix-tokens", "64", "--suffix-tokens", "32", tasks=tasks)
    assert [(row["benchmark"], row["split"], row["n"]) for row in found] == [
        ("held-out", "single-line", 2),
        ("held-out", "random-span", 2),
    ]
    assert [row["pass_at_1"] for row in found] == [None, None]
    assert "code" not in said


def test_rows_are_kept_but_for_a_torn_one(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    for before, after in (("", ""), ('{"task": 1}\n{"ta', '{"task": 1}\n')):
        file.write_text(before)
        with _json_lines(file, keep=True) as write:
            assert file.read_text() == after  # before a row is written, too
            write({"task": 2})
        assert file.read_text() == after + '{"task": 2}\n'
    with _json_lines(file):
        assert file.read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--human-eval or --held-out, or choose --cross-file, --fidelity or --next-edit"),
        (["--human-eval", str(DATA), "--format", "pms"], "unknown 'pms', choose from psm, spm, efim"),
        (["--held-out", str(DATA), "--split", "random-span-light"], "a part of the benchmark"),
        (["--human-eval", str(DATA), "--core", "ws://127.0.0.1:9/ws", "--cut", "token"], "needs the model's tokenizer"),
        (["--human-eval", str(DATA), "--core", "ws://127.0.0.1:9/ws", "--short"], "--short needs the model's tokenizer"),
        (["--human-eval", str(DATA), "--cut", "word"], "unknown 'word', choose from given, token, character"),
        (["--human-eval", str(DATA / "HumanEval-RandomSpanInfilling.jsonl"), "--split", "single-line"], "no tasks of"),
        (["--human-eval", "missing.jsonl"], "cannot be read"),
        (["--cross-file", "--alternatives", "2"], "leave out --alternatives"),
        (["--cross-file", "--resume"], "--resume goes on with the file of --json"),
        (["--cross-file", "--resume", "--json", "-"], "--resume goes on with the file of --json"),
        (["--human-eval", str(DATA), "--resume", "--json", "rows.jsonl"], "only with --cross-file"),
        (["--human-eval", str(DATA), "--json", "missing/rows.jsonl"], "cannot be written"),
        (["--human-eval", str(DATA), "--fim-format", "starcoder"], "which the FIM format 'starcoder' needs"),
    ],
)
def test_what_cannot_be_evaluated_is_named(arguments: list[str], message: str, runtime: Path) -> None:
    with pytest.raises(BadInput, match=message):
        CliRunner().invoke(app, ["eval", *arguments], catch_exceptions=False)


def test_fidelity_needs_no_model(tmp_path: Path) -> None:
    functions = (f"int {name}(int b)\n{{\n    return (b + {name}) * 0xFFFFFFFF;\n}}\n" for name in ("one", "two", "three"))
    (tmp_path / "a.c").write_text("\n".join(functions))
    json_file = tmp_path / "rows.json"
    arguments = ["--fidelity", str(tmp_path), "--limit", "3", "--json", str(json_file)]
    result = CliRunner().invoke(app, ["eval", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    rows = [json.loads(line) for line in json_file.read_text().splitlines()]
    assert {(row["language"], row["verdict"]) for row in rows} == {("c", "as written")}
    assert {row["kind"] for row in rows} == {"start", "middle", "closed", "block", "indent"}
    assert "100.0" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--fidelity"], "give one at least"), (["there"], "there is for --fidelity alone")]
)
def test_paths_are_those_of_fidelity(arguments: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        CliRunner().invoke(app, ["eval", *arguments], catch_exceptions=False)
