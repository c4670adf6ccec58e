"""Settings: their table, and that the documentation has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from protocol.settings import SETTINGS, json_name, settings_table

REPOSITORY = Path(__file__).parents[2]


def test_the_table_names_every_setting_once() -> None:
    rows = settings_table().splitlines()[2:]
    assert len(rows) == len(SETTINGS)
    assert "| `maxTokens` | `--max-tokens` | whole number | `64` | Token limit for a suggestion |" in rows


def test_the_documented_table_is_true() -> None:
    assert (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8").endswith(settings_table())


def extension_properties() -> dict[str, dict[str, Any]]:
    """Every setting of the VS Code extension, by its full name."""
    manifest = json.loads((REPOSITORY / "vscode-client" / "package.json").read_text(encoding="utf-8"))
    return {
        name: prop for part in manifest["contributes"]["configuration"] for name, prop in part["properties"].items()
    }


EXTENSION_SETTINGS = [setting for setting in SETTINGS.values() if not setting.secret]


def test_the_extension_describes_every_setting_in_the_same_words() -> None:
    properties = extension_properties()
    for setting in EXTENSION_SETTINGS:
        told = properties[f"midfill.{json_name(setting.name)}"]["markdownDescription"].replace("#midfill.", "")
        assert told.replace("#", "").startswith(f"{setting.about.meaning}."), setting.name


def test_the_extension_has_the_limits_of_every_setting() -> None:
    properties = extension_properties()
    shown = {setting.name: properties[f"midfill.{json_name(setting.name)}"] for setting in EXTENSION_SETTINGS}
    limits = {name: (prop.get("minimum"), prop.get("maximum")) for name, prop in shown.items()}
    assert limits == {setting.name: (setting.about.at_least, setting.about.at_most) for setting in EXTENSION_SETTINGS}
