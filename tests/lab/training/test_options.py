from __future__ import annotations

from typing import Any

import pytest

from midfill_lab.training.options import ExampleOptions, OptionError, Stage, TrainingOptions, parse_stages


def test_stages_are_read_as_they_are_written() -> None:
    assert parse_stages("512:0.7,2048:0.3") == (Stage(512, 0.7), Stage(2048, 0.3))


@pytest.mark.parametrize("text", ["", "512", "512:x", "a:1", "512:0.5:0.5"])
def test_other_forms_of_stages_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="WINDOW:SHARE"):
        parse_stages(text)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_steps": 0}, "max_steps"),
        ({"stages": (Stage(512, 0.7),)}, "stages"),
        ({"batch_tokens": 1000}, "batch_tokens is 1000"),
        ({"stages": (Stage(8192, 1),)}, "window is 8192"),
        ({"lr": 0.0}, r"lr is 0\.0"),
        ({"warmup": -1.0}, "warmup"),
        ({"warmup": 0.5, "decay": 0.6}, r"warmup \+ decay"),
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        TrainingOptions(**options)


@pytest.mark.parametrize(
    "name", ["fim_rate", "efim_rate", "spm_rate", "fragment_rate", "context_fragment_rate", "piece_rate", "open_end_rate"]
)
def test_rates_are_shares(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is 1.5"):
        ExampleOptions(**{name: 1.5})


def test_limits_are_no_part_of_the_recipe() -> None:
    recipe = TrainingOptions(max_steps=1).recipe()
    assert recipe == TrainingOptions(max_steps=5, compile=False, checkpoint_minutes=1).recipe()
    assert recipe != TrainingOptions(max_steps=1, seed=1).recipe()
    assert recipe["examples.fim_rate"] == ExampleOptions().fim_rate
