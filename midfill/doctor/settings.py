"""The settings in force, and the origin of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from midfill.doctor.findings import Section
from protocol.errors import BadSettings
from protocol.settings import SETTINGS, Settings, json_name, option_name, variable_name
from protocol.settings_sources import read_environment

_DEFAULT = "default"


def settings_in_force(settings: Settings, environment: Mapping[str, str], refused: Sequence[BadSettings]) -> Section:
    """Every setting with its value and origin, and the refused variables; defaults are minor. Secrets are not shown.

    The doctor does not see an editor's settings.
    """
    facts: list[tuple[str, str]] = []
    defaults: list[tuple[str, str]] = []
    for setting in SETTINGS.values():
        value = getattr(settings, setting.name)
        shown = ("set" if value else "not set") if setting.secret else _show(value)
        origin = _origin(settings, setting.name, environment)
        (defaults if origin == _DEFAULT else facts).append((json_name(setting.name), f"{shown} ({origin})"))
    problems = tuple(f"{error} (correct or unset the variable)" for error in refused)
    return Section("settings", tuple(facts), problems, tuple(defaults))


def _origin(settings: Settings, name: str, environment: Mapping[str, str]) -> str:
    variable = variable_name(name)
    text = environment.get(variable, "")
    from_variable, refused = read_environment(Settings(), {variable: text})
    if getattr(settings, name) != getattr(from_variable, name):
        return option_name(name)
    return variable if text and not refused else _DEFAULT


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"
