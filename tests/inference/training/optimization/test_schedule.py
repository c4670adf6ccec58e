from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.training.optimization.schedule import TrainingProgress, rate_factor, stage_at
from inference.training.options import Stage, TrainingOptions


@pytest.mark.parametrize(
    ("share", "factor"), [(0, 0), (0.05, 0.5), (0.1, 1), (0.5, 1), (0.8, 1), (0.9, 0.5), (0.999, 0.005), (1, 0)]
)
def test_rates_warm_up_stay_and_decay(share: float, factor: float) -> None:
    assert rate_factor(share, warmup=0.1, decay=0.2) == pytest.approx(factor)


@given(st.floats(0, 1))
def test_without_warmup_and_decay_the_rate_is_constant(share: float) -> None:
    assert rate_factor(share, warmup=0, decay=0) == 1


@pytest.mark.parametrize(("share", "stage"), [(0, 0), (0.69, 0), (0.7, 1), (0.99, 1), (1, 1)])
def test_stages_follow_one_another(share: float, stage: int) -> None:
    assert stage_at(share, (Stage(512, 0.7), Stage(2048, 0.3))) == stage


def test_the_share_of_a_run_is_that_of_its_steps() -> None:
    progress = TrainingProgress(step=10)
    assert progress.share(TrainingOptions(max_steps=100)) == pytest.approx(0.1)
    assert progress.share(TrainingOptions(max_steps=5)) == 1
