from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from inference.training.cli import app
from inference.training.corpus.corpus import Manifest, PackageRecord
from inference.training.machine import Machine
from inference.training.optimization.schedule import TrainingProgress
from inference.training.options import Stage, TrainingOptions
from inference.training.publishing.card import CardFacts, run_command, write_card
from inference.training.run.checkpoints import Recipe
from inference.training.run.evaluation import HeldOutLosses

OPTIONS = TrainingOptions(max_minutes=10, stages=(Stage(512, 0.75), Stage(2048, 0.25)))
FACTS = CardFacts(
    name="midfill-test",
    parameters=10_500_000,
    vocabulary=8192,
    options=OPTIONS,
    recipes=(Recipe(0, OPTIONS.recipe()),),
    manifest=Manifest(
        (
            PackageRecord("kept", "1.0", "MIT", "train", 3, 40_000),
            PackageRecord("kept", "2.0", "MIT", "train", 2, 20_000),
            PackageRecord("unseen", "3.1", "ISC", "held_out", 2, 9_000),
            PackageRecord("secret", "1", "unknown", "refused", 0, 0),
        ),
        {"vendored": 12},
    ),
    progress=TrainingProgress(step=100, tokens=21_000_000, seconds=600, windows=(300, 20)),
    machine=Machine("A Processor", 2, None, "2.13.0"),
    losses=HeldOutLosses(2.5, 1.1, 2.75, 0.9, 0.8, 0.66),
)


def card(facts: CardFacts, folder: Path) -> str:
    write_card(facts, folder / "README.md")
    return (folder / "README.md").read_text()


def test_the_card_states_data_training_and_losses(tmp_path: Path) -> None:
    text = card(FACTS, tmp_path)
    for stated in (
        "license: apache-2.0",
        "10.5M parameters",
        "100 steps, 21.0M tokens, 10 minutes on 2 cores of A Processor",
        "| kept 1.0, 2.0 | MIT | 5 | 60 |",
        "Held out: unseen 3.1",
        "refused for their licence: 1",
        "| left to right, nats per token | 2.500 |",
        "| the same at positions 512 to 3,072, nats per token | 2.750 |",
        "The model was not trained on positions beyond 2,048",
        "2.0 training tokens for each parameter",
        run_command(OPTIONS),
    ):
        assert stated in text
    assert "secret" not in text
    assert "interim" not in text


def test_a_card_of_an_unfinished_run_says_so(tmp_path: Path) -> None:
    progress = replace(FACTS.progress, seconds=150, windows=(300, 0))
    text = card(replace(FACTS, progress=progress), tmp_path)
    assert "interim edition, exported after 25% of the run" in text
    assert "The model was not trained on positions beyond 512" in text


def test_changes_of_the_recipe_are_told(tmp_path: Path) -> None:
    before = Recipe(0, OPTIONS.recipe() | {"lr": 0.1})
    text = card(replace(FACTS, recipes=(before, Recipe(50, OPTIONS.recipe()))), tmp_path)
    assert "Up to step 50 the run had lr = 0.1." in text
    assert "Up to step" not in card(FACTS, tmp_path)


def test_a_card_tells_what_the_run_went_on_from(tmp_path: Path) -> None:
    text = card(replace(FACTS, options=replace(OPTIONS, start="bundled", mixed_precision="no")), tmp_path)
    for stated in ("Continues the model `bundled`", "--from bundled --mixed-precision no", "over float32 weights"):
        assert stated in text
    assert "training tokenizer" not in text
    assert "From scratch." in card(FACTS, tmp_path)


def test_the_command_on_the_card_is_one_that_the_command_line_takes() -> None:
    arguments = run_command(OPTIONS).split()[3:]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "error: no tokenizer at" in result.stderr
