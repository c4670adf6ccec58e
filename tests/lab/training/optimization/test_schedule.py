from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_lab.training.optimization.schedule import TrainingProgress, rate_factor, stage_at
from midfill_lab.training.options import Stage, TrainingOptions


@pytest.mark.parametrize(
    ("share", "factor"), [(0, 0), (0.05, 0.5), (0.1, 1), (0.5, 1), (0.8, 1), (0.9, 0.5), (0.999, 0.005), (1, 0)]
)
def test_rates_warm_up_stay_and_decay(share: float, factor: float) -> None:
    assert rate_factor(share, 7, TrainingOptions(warmup=0.1, decay=0.2)) == pytest.approx(factor)


@given(st.floats(0, 1))
def test_without_warmup_and_decay_the_rate_is_constant(share: float) -> None:
    assert rate_factor(share, 0, TrainingOptions(warmup=0, decay=0)) == 1


@pytest.mark.parametrize(("share", "stage"), [(0, 0), (0.69, 0), (0.7, 1), (0.99, 1), (1, 1)])
def test_stages_follow_one_another(share: float, stage: int) -> None:
    assert stage_at(share, (Stage(512, 0.7), Stage(2048, 0.3))) == stage


def test_the_share_of_a_run_is_that_of_its_steps() -> None:
    progress = TrainingProgress(step=10)
    assert progress.share(TrainingOptions(max_steps=100)) == pytest.approx(0.1)
    assert progress.share(TrainingOptions(max_steps=5)) == 1


@pytest.mark.parametrize(("step", "share", "factor"), [(0, 0.4, 0.05), (9, 0.4, 0.95), (10, 0.4, 1), (50, 0.95, 0.1)])
def test_rates_warm_up_by_steps_where_the_clock_says_little_of_them(step: int, share: float, factor: float) -> None:
    options = TrainingOptions(minutes=8, warmup=0.5, warmup_steps=10, decay=0.5)
    assert rate_factor(share, step, options) == pytest.approx(factor)


def test_the_share_of_a_run_by_the_clock_is_that_of_its_minutes() -> None:
    progress = TrainingProgress(step=10, seconds=120)
    assert progress.share(TrainingOptions(max_steps=5, minutes=8)) == pytest.approx(0.25)
    assert progress.share(TrainingOptions(minutes=1)) == 1
