"""The settings in force, and the origin of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from midfill.doctor.findings import Section
from protocol.errors import BadSettings
from protocol.settings import SETTINGS, Settings, json_name, option_name, variable_name
from protocol.settings_sources import read_environment


def settings_in_force(settings: Settings, environment: Mapping[str, str], refused: Sequence[BadSettings]) -> Section:
    """Every setting with its value and origin, and the refused variables. Secrets are not shown.

    The doctor does not see an editor's settings.
    """
    facts = []
    for setting in SETTINGS.values():
        value = getattr(settings, setting.name)
        shown = ("set" if value else "not set") if setting.secret else _show(value)
        facts.append((json_name(setting.name), f"{shown} ({_origin(settings, setting.name, environment)})"))
    return Section("settings", tuple(facts), tuple(f"{error} (correct or unset the variable)" for error in refused))


def _origin(settings: Settings, name: str, environment: Mapping[str, str]) -> str:
    variable = variable_name(name)
    text = environment.get(variable, "")
    from_variable, refused = read_environment(Settings(), {variable: text})
    if getattr(settings, name) != getattr(from_variable, name):
        return option_name(name)
    return variable if text and not refused else "default"


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"
