from __future__ import annotations

import pytest

from midfill_lab.training.arguments import TrainArguments
from midfill_lab.training.options import OptionError


def test_muon_is_the_default_from_scratch_unless_the_loss_is_scaled() -> None:
    assert TrainArguments(mixed_precision="no", lr=0.1).options().muon_lr == 0.1
    assert TrainArguments(mixed_precision="fp16", lr=0.1).options().muon_lr is None
    with pytest.raises(OptionError, match=r"muon_lr is 0\.2, expected none with fp16"):
        TrainArguments(mixed_precision="fp16", muon_lr=0.2).options()
