from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from inference.training.cli import app
from inference.training.corpus.corpus import Corpus, read_manifest


def test_corpus_and_tokenizer_are_made(environment: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(
        app,
        ["corpus", str(tmp_path), "--environment", str(environment), "--no-standard-library", "--hold-out", "Gamma"],
    )
    assert made.exit_code == 0, made.output
    assert "refused: unlicensed, licence unknown" in made.output
    assert [package.name for package in read_manifest(tmp_path).of_role("held_out")] == ["gamma"]
    assert len(Corpus(tmp_path, "train")) == 12
    made = CliRunner().invoke(app, ["tokenizer", str(tmp_path), "--size", "400"])
    assert made.exit_code == 0, made.output
    assert (tmp_path / "tokenizer.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["corpus", "OUT", "--environment", "/no/such/place"], "no such package environment: /no/such/place"),
        (["tokenizer", "OUT"], "no usable train corpus"),
        (["run", "CORPUS", "OUT"], "max_minutes and max_steps"),
        (["run", "CORPUS", "OUT", "--max-steps", "1", "--fim-rate", "2"], "fim_rate is 2.0"),
        (["run", "CORPUS", "OUT", "--max-steps", "1", "--stages", "big"], "'big'"),
        (["run", "OUT", "OUT", "--max-steps", "1"], "no tokenizer"),
        (["export", "OUT", "CORPUS", "MODEL"], "no checkpoint"),
    ],
)
def test_errors_name_what_is_wrong_without_a_traceback(
    corpus_folder: Path, tmp_path: Path, arguments: list[str], told: str
) -> None:
    places = {"OUT": tmp_path / "out", "MODEL": tmp_path / "model", "CORPUS": corpus_folder}
    result = CliRunner().invoke(app, [str(places.get(argument, argument)) for argument in arguments])
    assert result.exit_code == 2
    assert told in result.stderr.replace("\n", "")
    assert "Traceback" not in result.output
