from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference.engine.speed_test import Speed
from inference.loading.options import EngineOptions
from inference.loading.speed_record import MOST_PROMPT_MS, MOST_TOKEN_MS, SpeedRecord, advice, recommended
from protocol.settings import BUNDLED_MODEL, TINY_MODEL

FAST, SLOW = Speed(MOST_PROMPT_MS, MOST_TOKEN_MS), Speed(MOST_PROMPT_MS + 1, MOST_TOKEN_MS)


def test_the_best_measurement_is_kept(tmp_path: Path) -> None:
    record = SpeedRecord(tmp_path / "new", EngineOptions())
    assert record.read() is None
    assert record.keep(SLOW) == SLOW
    assert record.keep(FAST) == FAST
    assert record.keep(SLOW) == FAST
    assert SpeedRecord(tmp_path / "new", EngineOptions()).read() == FAST
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".json"]


@pytest.mark.parametrize("change", [{"weights": "int8"}, {"model": "other"}, {"device": "cpu"}, {"threads": 1}])
def test_each_model_quantization_and_device_has_its_own(tmp_path: Path, change: dict[str, object]) -> None:
    SpeedRecord(tmp_path, EngineOptions()).keep(FAST)
    assert SpeedRecord(tmp_path, replace(EngineOptions(), **change)).read() is None  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"prompt_ms": "x", "token_ms": 1}', '{"prompt_ms": null}'])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: str) -> None:
    record = SpeedRecord(tmp_path, EngineOptions())
    record.keep(FAST)
    next(tmp_path.iterdir()).write_text(content)
    assert record.read() is None
    assert record.keep(SLOW) == SLOW == record.read()


def test_a_folder_that_cannot_be_made_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert SpeedRecord(tmp_path / "file", EngineOptions()).keep(FAST) == FAST
    assert "cannot be kept" in caplog.text


def test_the_recommendation_follows_the_limits() -> None:
    assert recommended(FAST) == BUNDLED_MODEL
    assert recommended(SLOW) == TINY_MODEL
    assert recommended(Speed(1, MOST_TOKEN_MS + 1)) == TINY_MODEL
    assert advice(BUNDLED_MODEL, SLOW).endswith("the model tiny is faster")
    assert [advice(BUNDLED_MODEL, FAST), advice(BUNDLED_MODEL, None), advice("other", SLOW)] == ["", "", ""]
