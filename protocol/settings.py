"""The settings of midfill: one frozen value, read from the command line, the environment and the editor.

Where a setting is given more than once, the later of these wins: its default, the `MIDFILL_*` variable, the
command line, the editor's `initializationOptions`, the editor's `workspace/didChangeConfiguration`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import cattrs

from protocol.errors import BadSettings

ENVIRONMENT_PREFIX = "MIDFILL_"
# Variables of the same prefix that are no settings: where cores meet and keep KV (`protocol.rendezvous`), what the
# kernels use of the CPU (`inference.kernel`), and where the tests find large files.
_OTHER_VARIABLES = frozenset({"MIDFILL_RUNTIME_DIR", "MIDFILL_CACHE_DIR", "MIDFILL_KERNEL_LEVEL", "MIDFILL_SHARED"})

BUNDLED_MODEL = "bundled"

Strategy = Literal["efim", "psm", "spm", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Healing = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class About:
    """What a setting means, and the smallest number that makes sense."""

    meaning: str
    at_least: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting; `settings_table()` is their documentation."""

    model: Annotated[str, About("`bundled`, a folder, or a name on the Hugging Face hub")] = BUNDLED_MODEL
    device: Annotated[str, About("Where the model runs: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`")] = "auto"
    dtype: Annotated[Dtype, About("The numbers the model computes in")] = "auto"
    context_tokens: Annotated[
        int, About("Longest prompt plus suggestion that the core makes room for", at_least=256)
    ] = 4096
    core: Annotated[
        str, About("Address of a core on another machine, as `wss://HOST:PORT/ws`; empty for a local one")
    ] = ""
    core_token: Annotated[str, About("Token of that core; empty for this machine's own token file")] = field(
        default="", repr=False
    )
    store_mb: Annotated[int, About("Memory for resident KV caches, in MB", at_least=0)] = 2048
    disk_mb: Annotated[
        int, About("Disk for KV caches that outlast the core, in MB; 0 keeps nothing on disk", at_least=0)
    ] = 1024
    fim_format: Annotated[
        str, About("How the model marks the parts of a prompt, by its family's name; `auto` asks the tokenizer")
    ] = "auto"
    healing: Annotated[
        Healing, About("Spell the word at the cursor anew; `auto` does for models not trained on parts of words")
    ] = "auto"
    exact: Annotated[bool, About("Make cached and cold logits the same to the bit, at some cost (see the docs)")] = (
        False
    )
    unload_after_s: Annotated[
        int, About("Seconds without a request after which the model is unloaded; 0 for never", at_least=0)
    ] = 900
    exit_after_s: Annotated[
        int, About("Seconds without a connection after which the core exits; 0 for never", at_least=0)
    ] = 1800
    strategy: Annotated[Strategy, About("How prompts are laid out and reused; all but `efim` are for comparison")] = (
        "efim"
    )
    prefix_tokens: Annotated[int, About("Window before the cursor, in tokens", at_least=16)] = 2048
    suffix_tokens: Annotated[int, About("Window after the cursor, in tokens", at_least=0)] = 1024
    max_tokens: Annotated[int, About("Longest suggestion, in tokens", at_least=1)] = 64
    multi_line: Annotated[bool, About("Suggest whole blocks where a block may begin")] = True
    alternatives: Annotated[
        int, About("Other suggestions to choose from, where suggestions are asked for by hand", at_least=0)
    ] = 2
    hold_back_percent: Annotated[
        int,
        About(
            "Show no suggestion on its own whose tokens are on average less probable, in percent; 0 shows all",
            at_least=0,
        ),
    ] = 20
    other_files: Annotated[bool, About("Put pieces of other open files before the prefix")] = True
    other_files_tokens: Annotated[int, About("At most so many tokens of them", at_least=0)] = 512
    disabled_languages: Annotated[tuple[str, ...], About("Language ids in which nothing is suggested")] = ()
    debounce_ms: Annotated[
        int,
        About(
            "Longest rest in milliseconds to wait for before the core is asked, where it is slower than the typing",
            at_least=0,
        ),
    ] = 100
    statistics: Annotated[
        bool, About("Count on this machine what is shown and accepted, for `midfill stats`; no text is kept")
    ] = True
    log_level: Annotated[LogLevel, About("What the language server writes to its log")] = "warning"


def with_environment(base: Settings, environment: Mapping[str, str]) -> Settings:
    """`base` with the `MIDFILL_*` variables laid over it; lists are separated by commas."""
    given = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): text
        for name, text in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _OTHER_VARIABLES
    }
    return _overlay(base, given, _text_converter, variable_name)


def with_options(base: Settings, options: Mapping[str, object]) -> Settings:
    """`base` with the options of a command line laid over it: typed values by field name, None for not given."""
    given = {name: value for name, value in options.items() if value is not None}
    return _overlay(base, given, _strict_converter, option_name)


def with_json(base: Settings, given: object) -> Settings:
    """`base` with an editor's JSON object laid over it; keys in camelCase or snake_case.

    An object with the key `midfill` holds them there, beside other programs' settings. Lua writes an empty object
    as an empty list.
    """
    if given is None or given == []:
        return base
    if not isinstance(given, Mapping):
        raise BadSettings(f"the settings must be an object with keys, not {given!r}")
    if "midfill" in given:
        return with_json(base, given["midfill"])
    return _overlay(base, {_snake_case(str(key)): value for key, value in given.items()}, _strict_converter, json_name)


def variable_name(name: str) -> str:
    """The environment variable of a setting: `MIDFILL_MAX_TOKENS`."""
    return ENVIRONMENT_PREFIX + name.upper()


def option_name(name: str) -> str:
    """The command line option of a setting: `--max-tokens`."""
    return "--" + name.replace("_", "-")


def json_name(name: str) -> str:
    """The key of a setting in an editor's JSON: `maxTokens`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def settings_table() -> str:
    """The table, in Markdown, of every setting: its names, type, default and meaning."""
    rows = [
        "| in the editor | option | type | default | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for setting in fields(Settings):
        kind = _describe(_TYPES[setting.name])
        names = f"| `{json_name(setting.name)}` | `{option_name(setting.name)}`"
        default = json.dumps(setting.default)
        rows.append(f"{names} | {kind} | `{default}` | {_ABOUT[setting.name].meaning} |")
    return "\n".join(rows) + "\n"


def _overlay(
    base: Settings, given: Mapping[str, object], converter: cattrs.Converter, named: Callable[[str], str]
) -> Settings:
    """All of `given` or nothing: BadSettings names the setting at fault, its value, and the nearest that exists."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _TYPES:
            raise BadSettings(_unknown(name, value, named))
        shown = "..." if name in _SECRETS else repr(value)
        try:
            changes[name] = converter.structure(value, _TYPES[name])
        except Exception as error:
            raise BadSettings(f"{named(name)} = {shown}: expected {_describe(_TYPES[name])}") from error
        at_least = _ABOUT[name].at_least
        if at_least is not None and changes[name] < at_least:
            raise BadSettings(f"{named(name)} = {shown}: must be at least {at_least}")
    return replace(base, **changes)


def _unknown(name: str, value: object, named: Callable[[str], str]) -> str:
    nearest = difflib.get_close_matches(name, _TYPES, n=1, cutoff=0.0)[0]
    shown = "..." if nearest in _SECRETS else repr(value)
    return f"unknown setting {named(name)} = {shown}: did you mean {named(nearest)}?"


def _snake_case(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()


def _describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in get_args(kind))
    return {int: "whole number", bool: "true or false", str: "text"}.get(kind, "list of texts")


def _make_strict_converter() -> cattrs.Converter:
    """Takes values that have their type already; nothing is converted but lists to tuples."""
    converter = cattrs.Converter(detailed_validation=False)

    def exactly(value: object, kind: type) -> object:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not of type {kind.__name__}")
        return value

    def texts(value: object, _: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{value!r} is not a list")
        return tuple(exactly(item, str) for item in value)

    for kind in (int, bool, str):
        converter.register_structure_hook(kind, exactly)
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], texts)
    return converter


def _make_text_converter() -> cattrs.Converter:
    """Takes values written as text."""
    converter = cattrs.Converter(detailed_validation=False)

    def truth(text: str, _: object) -> bool:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.strip().lower()]

    def texts(text: str, _: object) -> tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())

    converter.register_structure_hook(bool, truth)
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], texts)
    return converter


_strict_converter = _make_strict_converter()
_text_converter = _make_text_converter()
_HINTS = get_type_hints(Settings, include_extras=True)
_TYPES: dict[str, Any] = {name: get_args(hint)[0] for name, hint in _HINTS.items()}
_ABOUT: dict[str, About] = {name: get_args(hint)[1] for name, hint in _HINTS.items()}
_SECRETS = frozenset(setting.name for setting in fields(Settings) if not setting.repr)
