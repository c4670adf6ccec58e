"""Determines the settings that distinguish one core from another, and describes differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from protocol.settings import CORE_SETTINGS, SETTINGS, Settings

SettingValue = str | int | bool

# A core's lifetime changes neither its answers nor what it keeps meanwhile. The model identifies the core.
_LIFETIMES = frozenset({"unload_after_s", "exit_after_s"})
_KEEPING = frozenset({"engine_session_header", "threads", "slots", "store_mb", "disk_mb"})

IDENTITY_SETTINGS = tuple(name for name in CORE_SETTINGS if name not in {"model", *_LIFETIMES})
"""The settings, besides the model, that change what a core computes or keeps."""

ANSWER_SETTINGS = tuple(name for name in IDENTITY_SETTINGS if name not in _KEEPING)
"""The identity settings that can change the text of a completion."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting whose value in a running core differs from the requested one."""

    name: str
    running: object
    asked: object


def core_settings(settings: Settings) -> dict[str, SettingValue]:
    """The settings that a core started with `settings` publishes beside its model."""
    return {name: getattr(settings, name) for name in CORE_SETTINGS if name != "model"}


def differences(
    running: Mapping[str, object], asked: Settings, names: Iterable[str] = IDENTITY_SETTINGS
) -> tuple[Difference, ...]:
    """The settings among `names` whose values differ; an unpublished one counts as its default."""
    pairs = ((name, running.get(name, SETTINGS[name].default), getattr(asked, name)) for name in names)
    return tuple(Difference(name, value, wanted) for name, value, wanted in pairs if value != wanted)


def describe(found: Iterable[Difference], named: Callable[[str], str]) -> str:
    """The differences in one line, as `healing = auto (requested: on)`; `named` spells a setting's name."""
    return ", ".join(f"{named(one.name)} = {_show(one.running)} (requested: {_show(one.asked)})" for one in found)


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
