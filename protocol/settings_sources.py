"""Where settings come from, each laid over the ones before: variables, command lines, editors' JSON.

Where a setting is given more than once, the later of these wins: its default, the `MIDFILL_*` variable, the
command line, the editor's `initializationOptions`, the editor's `workspace/didChangeConfiguration`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import cattrs

from protocol.errors import BadSettings
from protocol.settings import ENVIRONMENT_PREFIX, SETTINGS, Setting, Settings, json_name, option_name, variable_name
from protocol.strict import refuse_conversions

# Variables of the same prefix that are no settings: where cores meet and keep KV (`protocol.rendezvous`), what the
# kernels use of the CPU (`inference.kernel`), and where the tests find large files.
_OTHER_VARIABLES = frozenset({"MIDFILL_RUNTIME_DIR", "MIDFILL_CACHE_DIR", "MIDFILL_KERNEL_LEVEL", "MIDFILL_SHARED"})


def with_environment(base: Settings, environment: Mapping[str, str]) -> Settings:
    """`base` with the `MIDFILL_*` variables laid over it; BadSettings for the first that cannot be used."""
    settings, refused = read_environment(base, environment)
    if refused:
        raise refused[0]
    return settings


def read_environment(base: Settings, environment: Mapping[str, str]) -> tuple[Settings, tuple[BadSettings, ...]]:
    """`base` with those `MIDFILL_*` variables laid over it that can be used, and why the others cannot.

    Lists are separated by commas. A variable that is set to nothing counts as not set.
    """
    refused = []
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES or not text:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        try:
            base = _overlay(base, {name: text}, _text_converter, variable_name)
        except BadSettings as error:
            refused.append(error)
    return base, tuple(refused)


def with_options(base: Settings, options: Mapping[str, object]) -> Settings:
    """`base` with the options of a command line laid over it: typed values by field name, None for not given.

    A list's option may be repeated, and each may hold several names separated by commas.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given |= {name: _split(",".join(value)) for name, value in given.items() if isinstance(value, list)}
    return _overlay(base, given, _strict_converter, option_name)


def with_json(base: Settings, given: object) -> Settings:
    """`base` with an editor's JSON object laid over it; keys in camelCase or snake_case.

    An object with the key `midfill` holds them there, beside other programs' settings. Lua writes an empty object
    as an empty list.
    """
    if given is None or given == []:
        return base
    if not isinstance(given, Mapping):
        raise BadSettings(f"the settings must be an object with keys, not {given!r:.100}")
    if "midfill" in given:
        return with_json(base, given["midfill"])
    return _overlay(base, {_snake_case(str(key)): value for key, value in given.items()}, _strict_converter, json_name)


def _overlay(
    base: Settings, given: Mapping[str, object], converter: cattrs.Converter, named: Callable[[str], str]
) -> Settings:
    """All of `given` or nothing: BadSettings names the setting at fault, its value, and the nearest that exists."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise BadSettings(_unknown(name, value, named))
        shown = _show(value, setting)
        try:
            changes[name] = converter.structure(value, setting.kind)
        except Exception as error:
            raise BadSettings(f"{named(name)} = {shown}: expected {setting.expected}") from error
        if (limit := setting.about.limit(changes[name])) is not None:
            raise BadSettings(f"{named(name)} = {shown}: must be {limit}")
    return replace(base, **changes)


def _unknown(name: str, value: object, named: Callable[[str], str]) -> str:
    nearest = SETTINGS[difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.0)[0]]
    return f"unknown setting {named(name)} = {_show(value, nearest)}: did you mean {named(nearest.name)}?"


def _show(value: object, setting: Setting) -> str:
    return "..." if setting.secret else f"{value!r:.100}"


def _snake_case(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _names(given: list[str]) -> tuple[str, ...]:
    """ValueError for a text that is no single name."""
    for name in given:
        if not re.fullmatch(r"[^\s,]+", name):
            raise ValueError(f"{name!r} is not a name")
    return tuple(given)


def _make_strict_converter() -> cattrs.Converter:
    """Takes values that have their type already; nothing is converted but lists to tuples."""
    converter = cattrs.Converter(detailed_validation=False)
    refuse_conversions(converter)

    def texts(value: object, _: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{value!r} is not a list")
        return _names([converter.structure(item, str) for item in value])

    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], texts)
    return converter


def _make_text_converter() -> cattrs.Converter:
    """Takes values written as text."""
    converter = cattrs.Converter(detailed_validation=False)

    def truth(text: str, _: object) -> bool:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.strip().lower()]

    def texts(text: str, _: object) -> tuple[str, ...]:
        return _names(_split(text))

    converter.register_structure_hook(bool, truth)
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], texts)
    return converter


_strict_converter = _make_strict_converter()
_text_converter = _make_text_converter()
