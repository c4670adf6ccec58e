"""Determines the settings that distinguish one core from another, and describes differences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from protocol.settings import CORE_SETTINGS, SETTINGS, Settings

SettingValue = str | int | bool  # cores of other versions publish bool

# A core's lifetime changes neither its answers nor what it keeps meanwhile. The model identifies the core.
_LIFETIMES = frozenset({"unload_after_s", "exit_after_s"})
_KEEPING = frozenset({"engine_key", "engine_session_header", "threads", "slots", "store_mb", "disk_mb"})
_DIGEST = "engine_key_digest"  # of the key, which the address file does not have

IDENTITY_SETTINGS = (*(name for name in CORE_SETTINGS if name not in {"model", *_LIFETIMES}), "engine_key")
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
    """The settings that a core started with `settings` publishes beside its model; of a secret only a digest."""
    published = {name: getattr(settings, name) for name in CORE_SETTINGS if name != "model"}
    return published | ({_DIGEST: _digest(settings.engine_key)} if settings.engine_key else {})


def has_key_of(running: Mapping[str, object], settings: Settings) -> bool:
    """Whether `settings` have the engine's key that the running core was started with, if there is one."""
    return running.get(_DIGEST) in (None, _digest(settings.engine_key))


def differences(
    running: Mapping[str, object], asked: Settings, names: Collection[str] = IDENTITY_SETTINGS
) -> tuple[Difference, ...]:
    """The settings among `names` whose values differ; an unpublished one counts as its default.

    Settings without the engine's key ask for none in particular.
    """
    shown = [name for name in names if not SETTINGS[name].secret]
    pairs = ((name, running.get(name, SETTINGS[name].default), getattr(asked, name)) for name in shown)
    found = [Difference(name, value, wanted) for name, value, wanted in pairs if value != wanted]
    if "engine_key" in names and asked.engine_key and running.get(_DIGEST) != _digest(asked.engine_key):
        found.append(Difference("engine_key", "another key" if _DIGEST in running else "none", "yours"))
    return tuple(found)


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()[:16]


def describe(found: Iterable[Difference], named: Callable[[str], str]) -> str:
    """The differences in one line, as `healing = auto (requested: on)`; `named` spells a setting's name."""
    return ", ".join(f"{named(one.name)} = {one.running} (requested: {one.asked})" for one in found)
