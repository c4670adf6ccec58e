"""Which settings make one core different from another, and how such differences are worded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from protocol.settings import CORE_SETTINGS, SETTINGS, Settings

SettingValue = str | int | bool

# How long a core stays says nothing about its answers, or about what it keeps while it stays. The model is what cores
# are found by.
_LIFETIMES = frozenset({"unload_after_s", "exit_after_s"})
_KEEPING = frozenset({"threads", "slots", "store_mb", "disk_mb"})

IDENTITY_SETTINGS = tuple(name for name in CORE_SETTINGS if name not in {"model", *_LIFETIMES})
"""The settings, besides the model, that change what a core computes or keeps."""

ANSWER_SETTINGS = tuple(name for name in IDENTITY_SETTINGS if name not in _KEEPING)
"""Those of them that can change the text of a suggestion."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting for which a running core has another value than the one asked for."""

    name: str
    running: object
    asked: object


def core_settings(settings: Settings) -> dict[str, SettingValue]:
    """What a core that is started with these settings publishes about itself, beside its model."""
    return {name: getattr(settings, name) for name in CORE_SETTINGS if name != "model"}


def differences(
    running: Mapping[str, object], asked: Settings, names: Iterable[str] = IDENTITY_SETTINGS
) -> tuple[Difference, ...]:
    """The settings among `names` whose values differ; one that the core does not publish has its default."""
    pairs = ((name, running.get(name, SETTINGS[name].default), getattr(asked, name)) for name in names)
    return tuple(Difference(name, value, wanted) for name, value, wanted in pairs if value != wanted)


def describe(found: Iterable[Difference], named: Callable[[str], str]) -> str:
    """The differences in one line, as `healing = auto (asked for: on)`; `named` spells a setting's name."""
    return ", ".join(f"{named(one.name)} = {_show(one.running)} (asked for: {_show(one.asked)})" for one in found)


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
