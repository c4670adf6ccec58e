from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from midfill_lab.recipe.__main__ import app
from midfill_lab.training.corpus import Corpus, read_manifest


def test_a_corpus_is_made(environment: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(
        app, ["corpus", str(tmp_path), "--environment", str(environment), "--no-standard-library", "--hold-out", "Gamma"]
    )
    assert made.exit_code == 0, made.output
    assert "refused: unlicensed, licence unknown" in made.output
    assert [package.name for package in read_manifest(tmp_path).of_role("held_out")] == ["gamma"]
    assert len(Corpus(tmp_path, "train")) == 12


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["corpus", "OUT", "--environment", "/no/such/place"], "no such package environment: /no/such/place"),
        (["base", "OUT", "MODEL"], "is missing"),
        (["average", "OUT", "MODEL"], "is not of the form FOLDER=SHARE"),
        (["average", "OUT", "MODEL=1"], "cannot be read"),
        (["gguf", "MODEL", "OUT"], "no model"),
        (["gguf", "MODEL", "OUT", "--matrices", "bf16", "--calibrate", "CORPUS"], "--matrices is bf16"),
    ],
)
def test_errors_name_what_is_wrong_without_a_traceback(
    corpus_folder: Path, tmp_path: Path, arguments: list[str], told: str
) -> None:
    places = {"OUT": tmp_path / "out", "MODEL": tmp_path / "model", "CORPUS": corpus_folder}
    result = CliRunner().invoke(app, [str(places.get(argument, argument)) for argument in arguments])
    assert result.exit_code == 2
    assert "".join(told.split()) in "".join(result.stderr.split())  # its lines may be wrapped anywhere
    assert "Traceback" not in result.output
