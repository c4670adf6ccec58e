"""The settings in force, and where each came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from midfill.doctor.findings import Section
from protocol.settings import Settings, option_name, variable_name


def settings_in_force(settings: Settings, environment: Mapping[str, str]) -> Section:
    """Every setting with its value and origin; secrets are not shown. Editors may set others yet."""
    facts = []
    for field in fields(Settings):
        value = getattr(settings, field.name)
        shown = ("set" if value else "not set") if not field.repr else _show(value)
        facts.append((field.name, f"{shown} ({_origin(settings, field.name, environment)})"))
    return Section("settings", tuple(facts))


def _origin(settings: Settings, name: str, environment: Mapping[str, str]) -> str:
    from protocol.settings import with_environment

    variable = variable_name(name)
    from_environment = getattr(with_environment(Settings(), environment), name)
    if getattr(settings, name) != from_environment:
        return option_name(name)
    return variable if variable in environment else "default"


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"
