"""Reads settings from their sources, each of which overrides the one before: variables, command line, editor's JSON.

The last of these that sets a value wins: its default, the `MIDFILL_*` variable, the command line, the editor's
`initializationOptions`, the editor's `workspace/didChangeConfiguration`.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_origin

import msgspec

from protocol.errors import BadSettings
from protocol.settings import ENVIRONMENT_PREFIX, SETTINGS, Setting, Settings, json_name, option_name, variable_name

# Variables of the same prefix that are no settings: the folders of `protocol.rendezvous`, the kernel's level
# (`inference.backends.cpu`), and the tests' folder of large files.
_OTHER_VARIABLES = frozenset({"MIDFILL_RUNTIME_DIR", "MIDFILL_CACHE_DIR", "MIDFILL_KERNEL_LEVEL", "MIDFILL_SHARED"})
# A variable that is less like every setting is another program's: Kubernetes sets MIDFILL_PORT for a Service `midfill`.
_MISSPELT = 0.7  # by difflib's measure
# What clients of the Copilot language server put beside the settings.
_OF_COPILOT_CLIENTS = frozenset({"editor_info", "editor_plugin_info", "network_proxy"})

log = logging.getLogger(__name__)

# White space within an item is a list that was not separated, unless the item is a path.
_NAME_OR_PATH = re.compile(r"[^\s,]+|(?=[^,]*[/\\])[^\s,][^,]*[^\s,]")


def with_environment(base: Settings, environment: Mapping[str, str]) -> Settings:
    """`base` overridden by the `MIDFILL_*` variables; BadSettings for the first invalid one."""
    settings, refused = read_environment(base, environment)
    if refused:
        raise refused[0]
    return settings


def read_environment(base: Settings, environment: Mapping[str, str]) -> tuple[Settings, tuple[BadSettings, ...]]:
    """`base` overridden by the valid `MIDFILL_*` variables, and the errors of the others.

    Commas separate the items of lists. An empty variable counts as not set. One that is no setting and resembles none
    is ignored, with a warning.
    """
    refused = []
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES or not text:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if not difflib.get_close_matches(name, SETTINGS, n=1, cutoff=_MISSPELT):
            log.warning("%s is not a setting of midfill, and ignored", variable)
            continue
        try:
            base = _overlay(base, {name: text}, _from_text, variable_name)
        except BadSettings as error:
            refused.append(error)
    return base, tuple(refused)


def with_options(base: Settings, options: Mapping[str, object]) -> Settings:
    """`base` overridden by the options of a command line: typed values by field name, None if not given.

    A list's option may be repeated, and each may hold several names separated by commas.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given |= {name: _split(",".join(value)) for name, value in given.items() if isinstance(value, list)}
    return _overlay(base, given, _typed, option_name)


def with_json(base: Settings, given: object) -> tuple[Settings, tuple[BadSettings, ...]]:
    """`base` overridden by an editor's JSON object, and an error for each unknown key, and each name that a list may no
    longer hold.

    Keys are in camelCase or snake_case. Editors send the settings of all programs to each of them: ours are under the
    key `midfill`, or the whole object if one of its keys is a setting. Lua writes an empty object as an empty list.
    Raises BadSettings for an invalid value, and then applies none.
    """
    if given is None or given == []:
        return base, ()
    if not isinstance(given, Mapping):
        raise BadSettings(f"the settings must be an object with keys, not {given!r:.100}")
    if "midfill" in given:
        return with_json(base, given["midfill"])
    named = {_snake_case(str(key)): value for key, value in given.items()}
    named = {name: value for name, value in named.items() if name not in _OF_COPILOT_CLIENTS}
    known = {name: value for name, value in named.items() if name in SETTINGS}
    problems = [_unknown(name, json_name) for name in named if name not in known]
    return _overlay(base, known, _typed, json_name), tuple(map(BadSettings, problems))


def with_json_text(base: Settings, text: str) -> Settings:
    """`base` overridden by a JSON object as text, which one program of midfill gives another; BadSettings if bad."""
    try:
        settings, unknown = with_json(base, json.loads(text))
    except ValueError as error:
        raise BadSettings(f"the settings are not JSON ({error}): {text[:100]!r}") from error
    if unknown:
        raise unknown[0]
    return settings


def is_for_us(given: object) -> bool:
    """Whether an editor's settings concern midfill: False if empty, or if all belong to other programs."""
    if isinstance(given, Mapping):
        return "midfill" in given or any(_snake_case(str(key)) in SETTINGS for key in given)
    return bool(given)  # `with_json` refuses it


def _overlay(
    base: Settings, given: Mapping[str, object], read: Callable[[Any, Any], Any], named: Callable[[str], str]
) -> Settings:
    """Applies all of `given` or none: BadSettings names the invalid setting, its value, and the closest known name."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise BadSettings(_unknown(name, named))
        shown = _show(value, setting)
        try:
            changes[name] = read(value, setting.kind)
        except (msgspec.ValidationError, UnicodeError) as error:
            raise BadSettings(f"{named(name)} = {shown}: expected {setting.expected}") from error
        if (limit := setting.about.limit(changes[name])) is not None:
            raise BadSettings(f"{named(name)} = {shown}: must be {limit}")
    return replace(base, **changes)


def _unknown(name: str, named: Callable[[str], str]) -> str:
    """Without the value, which may be a secret."""
    nearest = difflib.get_close_matches(name, SETTINGS, n=1)
    remedy = f": did you mean {named(nearest[0])}?" if nearest else "; docs/settings.md lists all"
    return f"unknown setting {named(name)}{remedy}"


def _show(value: object, setting: Setting) -> str:
    return "..." if setting.secret else f"{value!r:.100}"


def _snake_case(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _typed(value: object, kind: Any) -> Any:
    """Checks a typed value; converts a list to a tuple. msgspec accepts 1.0 as an integer."""
    if isinstance(value, float):
        raise msgspec.ValidationError(f"{value!r} is a float")
    return _checked(msgspec.convert(value, kind))


def _from_text(text: str, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return _checked(msgspec.convert(_split(text), kind))
    if kind is bool:
        text = {"yes": "true", "no": "false"}.get(text.strip().lower(), text.strip())
    return _checked(msgspec.convert(text, kind, strict=False))


def _checked(value: object) -> object:
    """`value`; a text must be one that programs can be started with, the items of a list names or paths."""
    if isinstance(value, str) and "\0" in value:
        raise msgspec.ValidationError(f"{value!r} has a NUL")
    for name in value if isinstance(value, tuple) else ():
        if not _NAME_OR_PATH.fullmatch(name):
            raise msgspec.ValidationError(f"{name!r} is not a name")
    return value
