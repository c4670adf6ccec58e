"""Settings: their table, and that the documentation has it."""

from __future__ import annotations

from pathlib import Path

from protocol.settings import SETTINGS, settings_table

REPOSITORY = Path(__file__).parents[2]


def test_the_table_names_every_setting_once() -> None:
    rows = settings_table().splitlines()[2:]
    assert len(rows) == len(SETTINGS)
    assert "| `maxTokens` | `--max-tokens` | whole number | `64` | Longest suggestion, in tokens |" in rows


def test_the_documented_table_is_true() -> None:
    assert (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8").endswith(settings_table())
