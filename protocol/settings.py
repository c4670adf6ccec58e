"""The settings of midfill: one frozen value, and for every setting what it means and how it is called where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from protocol.messages import MAX_ALTERNATIVES

ENVIRONMENT_PREFIX = "MIDFILL_"
BUNDLED_MODEL = "bundled"

Strategy = Literal["efim", "psm", "spm", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Healing = Literal["auto", "on", "off"]
Weights = Literal["auto", "int8", "fp8"]


@dataclass(frozen=True, slots=True)
class About:
    """What a setting means, and between which numbers it makes sense."""

    meaning: str
    at_least: int | None = None
    at_most: int | None = None

    def limit(self, value: Any) -> str | None:
        """The limit that a value is beyond, for people."""
        if self.at_least is not None and value < self.at_least:
            return f"at least {self.at_least}"
        if self.at_most is not None and value > self.at_most:
            return f"at most {self.at_most}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting; `settings_table()` is their documentation."""

    model: Annotated[str, About("`bundled`, a folder, or a name on the Hugging Face hub")] = BUNDLED_MODEL
    device: Annotated[str, About("Where the model runs: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`")] = "auto"
    dtype: Annotated[
        Dtype, About("What the model computes in; `auto` is bfloat16 where the device is fast in it, else float32")
    ] = "auto"
    weights: Annotated[
        Weights,
        About(
            "`int8` rounds the weights: on a CPU for about twice the speed, on a GPU for less memory; "
            "`fp8`, on newer GPUs, for both"
        ),
    ] = "auto"
    threads: Annotated[
        int, About("Of the CPU; 0 takes all cores for the kernel, half of them where torch computes", at_least=0)
    ] = 0
    context_tokens: Annotated[
        int, About("Longest prompt plus suggestion to make room for; at most what the model was made for", at_least=256)
    ] = 4096
    core: Annotated[
        str, About("Address of a core on another machine, as `wss://HOST:PORT`; empty for this machine's")
    ] = ""
    core_token: Annotated[str, About("Token of that core; may be empty for one at a loopback address")] = field(
        default="", repr=False
    )
    slots: Annotated[
        int,
        About(
            "Requests computed together, each in memory for a whole context; 0 for what suits `store_mb`", at_least=0
        ),
    ] = 0
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
    exact: Annotated[
        bool,
        About("Cached and cold logits the same to the bit, by forwards of one shape: for proofs, 20 times slower"),
    ] = False
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
        int,
        About("Other suggestions to choose from, where suggestions are asked for by hand", 0, MAX_ALTERNATIVES),
    ] = 2
    hold_back_percent: Annotated[
        int,
        About(
            "Show no suggestion on its own whose tokens are on average less probable, in percent; 0 shows all",
            at_least=0,
            at_most=100,
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
    for setting in SETTINGS.values():
        names = f"| `{json_name(setting.name)}` | `{option_name(setting.name)}`"
        rows.append(f"{names} | {setting.expected} | `{json.dumps(setting.default)}` | {setting.about.meaning} |")
    return "\n".join(rows) + "\n"


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of `Settings`."""

    name: str
    kind: Any  # its type
    default: object
    about: About
    secret: bool  # whose value is never shown

    @property
    def expected(self) -> str:
        """What its value has to be, for people."""
        if get_origin(self.kind) is Literal:
            return "one of " + ", ".join(f"`{choice}`" for choice in get_args(self.kind))
        return {int: "whole number", bool: "true or false", str: "text"}.get(self.kind, "list of texts")


def _read_fields() -> Mapping[str, Setting]:
    hints = {name: get_args(hint) for name, hint in get_type_hints(Settings, include_extras=True).items()}
    return {
        field.name: Setting(field.name, kind, field.default, about, secret=not field.repr)
        for field in fields(Settings)
        for kind, about in [hints[field.name]]
    }


SETTINGS = _read_fields()
"""Every setting, by its name."""

CORE_SETTINGS = (
    *("model", "device", "dtype", "weights", "threads", "context_tokens", "slots", "store_mb", "disk_mb"),
    *("fim_format", "healing", "exact", "unload_after_s", "exit_after_s"),
)
"""The settings that a core is started with; `protocol.identity` says which of them make two cores different."""
