from __future__ import annotations

from pathlib import Path

import pytest
import torch

from midfill_lab.recipe.quantization_losses import quantization_losses
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.options import Quantization
from midfill_lab.training.publishing.model_folder import write_model
from midfill_lab.training.run.modeling import build_model
from tests.lab.training.runs import OPTIONS, TINY


@pytest.fixture
def model(corpus_folder: Path, vocabulary: Vocabulary, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    (tmp_path / "model").mkdir()
    write_model(build_model(TINY, vocabulary), corpus_folder / "tokenizer.json", tmp_path / "model", OPTIONS)
    return tmp_path / "model"


def test_fewer_bits_are_smaller_and_further_from_the_model(model: Path, corpus_folder: Path) -> None:
    choices = [None, Quantization("q8_0", "q8_0"), Quantization("q4_0", "q4_0")]
    rows = list(quantization_losses(str(model), corpus_folder, choices, samples=4, window=64))
    assert [row.quantization for row in rows] == choices
    sizes = [row.num_bytes for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    whole, eight, four = (row.losses[-1].whole for row in rows)
    assert 0 < abs(eight - whole) < abs(four - whole)
