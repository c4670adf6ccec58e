"""Settings: their table, and that the documentation has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from protocol.settings import SETTINGS, Settings, json_name, settings_table
from protocol.settings_sources import with_json

REPOSITORY = Path(__file__).parents[2]


def test_the_tables_name_every_setting_once() -> None:
    rows = settings_table().splitlines()[2:]
    assert len(rows) + len(settings_table(advanced=True).splitlines()[2:]) == len(SETTINGS)
    assert "| `maxTokens` | `--max-tokens` | whole number | `64` | Token limit for a suggestion |" in rows


def test_the_documented_tables_are_true() -> None:
    page = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    assert f"\n\n{settings_table()}\n## Advanced\n" in page
    assert page.endswith(settings_table(advanced=True))


def test_there_are_few_settings_and_the_others_are_advanced() -> None:
    assert len([setting for setting in SETTINGS.values() if not (setting.advanced or setting.secret)]) <= 16


def test_an_editor_may_send_advanced_settings_all_the_same() -> None:
    settings, unknown = with_json(Settings(), {"contextTokens": 8192, "logLevel": "debug"})
    assert (settings.context_tokens, settings.log_level, unknown) == (8192, "debug", ())


def extension_properties() -> dict[str, dict[str, Any]]:
    """Every setting of the VS Code extension, by its full name, in its words."""
    extension = REPOSITORY / "vscode-client"
    manifest, texts = (
        json.loads((extension / name).read_text(encoding="utf-8")) for name in ("package.json", "package.nls.json")
    )
    properties = manifest["contributes"]["configuration"]["properties"]
    return {name: prop | {"text": texts[prop["markdownDescription"].strip("%")]} for name, prop in properties.items()}


# In VS Code, `midfill.enabled` switches languages off.
EXTENSION_SETTINGS = [
    setting for setting in SETTINGS.values() if not (setting.secret or setting.advanced or setting.name == "disabled_languages")
]


def test_the_extension_describes_every_setting_in_the_same_words() -> None:
    properties = extension_properties()
    for setting in EXTENSION_SETTINGS:
        told = properties[f"midfill.{json_name(setting.name)}"]["text"]
        assert told.startswith(f"{setting.about.meaning}."), setting.name


def test_the_extension_has_the_limits_of_every_setting() -> None:
    properties = extension_properties()
    shown = {setting.name: properties[f"midfill.{json_name(setting.name)}"] for setting in EXTENSION_SETTINGS}
    limits = {name: (prop.get("minimum"), prop.get("maximum")) for name, prop in shown.items()}
    assert limits == {setting.name: (setting.about.at_least, setting.about.at_most) for setting in EXTENSION_SETTINGS}
