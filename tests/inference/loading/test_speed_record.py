from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference.loading.options import EngineOptions
from inference.loading.speed_record import MOST_PROMPT_MS, MOST_TOKEN_MS, PROMPT_TOKENS, Speed, SpeedRecord, advice, recommended
from protocol.messages import Usage
from protocol.settings import BUNDLED_MODEL, TINY_MODEL

FAST, SLOW = Speed(MOST_PROMPT_MS, MOST_TOKEN_MS), Speed(MOST_PROMPT_MS + 1, MOST_TOKEN_MS)


def answer(prompt_ms: float, token_ms: float, *, prompt_tokens: int = PROMPT_TOKENS, tokens: int = 10) -> Usage:
    """An answer that took so many milliseconds for each PROMPT_TOKENS, and for each token."""
    prefill = prompt_ms * prompt_tokens / PROMPT_TOKENS
    return Usage(2000, prompt_tokens, tokens, tokens, queue_ms=9e9, prefill_ms=prefill, decode_ms=token_ms * tokens)


def noted(record: SpeedRecord, speed: Speed, answers: int = 5) -> SpeedRecord:
    for _ in range(answers):
        record.note(answer(speed.prompt_ms, speed.token_ms))
    return record


def test_the_speed_is_that_of_the_fast_ones_of_the_last_answers(tmp_path: Path) -> None:
    record = SpeedRecord(tmp_path / "new", EngineOptions())
    assert noted(record, FAST, 4).speed is None
    record.note(answer(1e9, 1e9))  # beside other programs
    assert record.speed == FAST
    record.note(answer(0, 0, prompt_tokens=63, tokens=3))
    assert record.speed == FAST
    noted(record, SLOW, 10)  # while others were at work
    assert record.speed == FAST
    assert noted(record, SLOW, 15).speed == SLOW


def test_the_speed_is_kept_until_there_are_new_answers(tmp_path: Path) -> None:
    noted(SpeedRecord(tmp_path / "new", EngineOptions()), SLOW).keep()
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".json"]
    later = SpeedRecord(tmp_path / "new", EngineOptions())
    assert later.speed == SLOW
    noted(later, FAST).keep()
    assert SpeedRecord(tmp_path / "new", EngineOptions()).speed == FAST


@pytest.mark.parametrize("change", [{"weights": "int8"}, {"model": "other"}, {"device": "cpu"}, {"threads": 1}])
def test_each_model_quantization_and_device_has_its_own(tmp_path: Path, change: dict[str, object]) -> None:
    noted(SpeedRecord(tmp_path, EngineOptions()), FAST).keep()
    assert SpeedRecord(tmp_path, replace(EngineOptions(), **change)).speed is None  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"prompt_ms": "x", "token_ms": 1}', '{"prompt_ms": null}'])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: str) -> None:
    noted(SpeedRecord(tmp_path, EngineOptions()), FAST).keep()
    next(tmp_path.iterdir()).write_text(content)
    record = SpeedRecord(tmp_path, EngineOptions())
    assert record.speed is None
    noted(record, SLOW).keep()
    assert SpeedRecord(tmp_path, EngineOptions()).speed == SLOW


def test_a_folder_that_cannot_be_made_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    record = noted(SpeedRecord(tmp_path / "file", EngineOptions()), FAST)
    record.keep()
    assert record.speed == FAST
    assert "cannot be kept" in caplog.text


def test_the_recommendation_follows_the_limits() -> None:
    assert recommended(FAST) == BUNDLED_MODEL
    assert recommended(SLOW) == TINY_MODEL
    assert recommended(Speed(1, MOST_TOKEN_MS + 1)) == TINY_MODEL
    assert advice(BUNDLED_MODEL, SLOW).endswith("the model tiny is faster")
    assert [advice(BUNDLED_MODEL, FAST), advice(BUNDLED_MODEL, None), advice("other", SLOW)] == ["", "", ""]
