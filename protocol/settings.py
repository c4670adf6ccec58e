"""The settings of midfill: one frozen value, and every setting's meaning and its name in each source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from protocol.messages import MAX_ALTERNATIVES

ENVIRONMENT_PREFIX = "MIDFILL_"
BUNDLED_MODEL = "bundled"
TINY_MODEL = "tiny"
"""The smallest model that midfill brings along, for slow machines and for tests."""
OWN_MODELS = (BUNDLED_MODEL, TINY_MODEL)
LOCAL_ENGINE = "local"

_MOST_TOKENS = 2**20  # the longest context of any model
_MOST_MB = 2**24
_YEAR_S = 365 * 24 * 3600

Strategy = Literal["efim", "psm", "spm", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Healing = Literal["auto", "on", "off"]
Weights = Literal["auto", "int8", "int4", "fp8"]
ContextSource = Literal["definitions", "usages", "similar", "edits", "staged"]
IgnoredFiles = Literal["context", "off"]
PrepareAhead = Literal["editing", "always", "never"]


@dataclass(frozen=True, slots=True)
class About:
    """The meaning of a setting, and its limits."""

    meaning: str
    at_least: int | None = None
    at_most: int | None = None

    def limit(self, value: Any) -> str | None:
        """The limit that a value exceeds, in words; None if it exceeds none."""
        if self.at_least is not None and value < self.at_least:
            return f"at least {self.at_least}"
        if self.at_most is not None and value > self.at_most:
            return f"at most {self.at_most}"
        return None


@dataclass(frozen=True, slots=True)
class Advanced(About):
    """About a setting for measuring and for rare needs: no editor's page shows it, and the documentation has it apart.

    It is read from every source all the same.
    """


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """The settings that a core starts with; `protocol.rendezvous` selects those that distinguish two cores."""

    model: Annotated[
        str,
        About(
            "The model: `bundled`, `tiny`, a folder, a GGUF file, a name on the Hugging Face hub, "
            "or another program's, such as `ollama:qwen2.5-coder:1.5b`"
        ),
    ] = BUNDLED_MODEL
    _: KW_ONLY
    engine: Annotated[
        str,
        About(
            "What runs the model: `local`, `llama-server=URL`, `llama-server` (started by the core; `=PROGRAM` names "
            "it), or `openai=URL` (vLLM, SGLang, or a router before several)"
        ),
    ] = LOCAL_ENGINE
    engine_key: Annotated[str, About("API key of that engine, if it asks for one")] = field(default="", repr=False)
    engine_session_header: Annotated[
        str, Advanced("HTTP header that names the session to that engine, for a router that keeps sessions on a server")
    ] = "X-Session-ID"
    device: Annotated[
        str,
        About(
            "Device: `cpu`, `cuda`, `cuda:1`, `mps` (Apple); `auto` is a CUDA GPU if there is one that suits the "
            "model, otherwise the CPU"
        ),
    ] = "auto"
    dtype: Annotated[
        Dtype, Advanced("Data type of the computation; `auto` is bfloat16 if the device is fast with it, otherwise float32")
    ] = "auto"
    weights: Annotated[
        Weights,
        About(
            "Weight quantization: `int8` doubles the speed on a CPU and saves memory on a GPU; `int4` is smaller "
            "and faster still and costs some accuracy (on a GPU where `device` is `cuda`); `fp8`, on newer GPUs, saves memory "
            "and time"
        ),
    ] = "auto"
    threads: Annotated[
        int,
        Advanced(
            "CPU threads; 0 = automatic: for the kernel one per physical core, at most 8; for torch half of the hardware threads",
            0,
            1024,
        ),
    ] = 0
    context_tokens: Annotated[
        int, Advanced("Token limit for a prompt with its suggestion, up to the model's own context length", 256, _MOST_TOKENS)
    ] = 4096
    slots: Annotated[
        int,
        Advanced(
            "Requests computed together, each with memory for a whole context; 0 = automatic, from `storeMb`",
            at_least=0,
            at_most=256,
        ),
    ] = 0
    store_mb: Annotated[
        int,
        Advanced(
            "Memory for the KV caches of earlier prompts, in MB; 0 = automatic: 0.5 % of the machine's memory, 128 "
            "at least, on a GPU 2048",
            0,
            _MOST_MB,
        ),
    ] = 0
    disk_mb: Annotated[
        int, Advanced("Disk space for KV caches that survive a restart of the core, in MB; 0 = none on disk", 0, _MOST_MB)
    ] = 1024
    fim_format: Annotated[
        str, Advanced("Fill-in-the-middle format, by the model family's name; `auto` recognises it from the tokenizer")
    ] = "auto"
    healing: Annotated[
        Healing, Advanced("Token healing: re-tokenize the partial word at the cursor; `auto` = off if the model needs none")
    ] = "auto"
    unload_after_s: Annotated[int, About("Unload the model after this many seconds without a request; 0 = never", 0, _YEAR_S)] = (
        900
    )
    exit_after_s: Annotated[
        int, Advanced("Stop the core after this many seconds without a connection; 0 = never", 0, _YEAR_S)
    ] = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CoreSettings):
    """Every setting; `settings_table()` renders their documentation."""

    core: Annotated[str, About("Address of a core on another machine, `wss://HOST:PORT`; empty = a core on this machine")] = ""
    core_token: Annotated[str, About("Access token of that core; needed if `core` is set")] = field(default="", repr=False)
    strategy: Annotated[
        Strategy, Advanced("Prompt layout: `efim`, or for comparison `psm`, `spm`, or `none` (EFIM without reuse)")
    ] = "efim"
    prefix_tokens: Annotated[int, Advanced("Tokens of context before the cursor", 16, _MOST_TOKENS)] = 2048
    suffix_tokens: Annotated[int, Advanced("Tokens of context after the cursor", 0, _MOST_TOKENS)] = 1024
    automatic: Annotated[bool, About("Suggest while you type; if false, only on request")] = True
    max_tokens: Annotated[int, About("Token limit for a suggestion", 1, 4096)] = 64
    multi_line: Annotated[bool, About("Suggest several lines where a block may begin")] = True
    alternatives: Annotated[
        int,
        Advanced("Further texts when you request a suggestion by hand; the one that fits best comes first", 0, MAX_ALTERNATIVES),
    ] = 2
    hold_back_percent: Annotated[
        int,
        About(
            "Hide automatic suggestions whose average token probability is below this percentage; 0 = show all",
            at_least=0,
            at_most=100,
        ),
    ] = 20
    shorten_unlikely: Annotated[
        bool, Advanced("Shorten automatic suggestions to the part that is worth most: likely to be right, yet long")
    ] = True
    other_files: Annotated[
        bool, About("Include excerpts of other files in the prompt: of open ones, and of files in the workspace folder")
    ] = True
    other_files_tokens: Annotated[int, Advanced("Token limit for text from other files", 0, _MOST_TOKENS)] = 512
    context_sources: Annotated[
        tuple[ContextSource, ...],
        Advanced(
            "Where that text comes from: signatures of symbols near the cursor, lines that use them, code like that at "
            "the cursor, your edits of a moment ago; in a commit message, what is staged"
        ),
    ] = ("definitions", "usages", "similar", "edits", "staged")
    disabled_languages: Annotated[tuple[str, ...], About("LSP language ids without suggestions, for example `markdown`")] = ()
    ignored_files: Annotated[
        IgnoredFiles,
        Advanced(
            "Files that `.gitignore` excludes: with `context` they get suggestions, but their text is never used for "
            "other files; with `off` they get no suggestions either, like files in `.midfillignore`"
        ),
    ] = "context"
    debounce_ms: Annotated[
        int,
        Advanced(
            "Maximum delay before a request, in milliseconds; used only when the model is slower than your typing",
            at_least=0,
            at_most=60_000,
        ),
    ] = 100
    prepare_ahead: Annotated[
        PrepareAhead,
        About(
            "When the core computes a place before you type there: `editing` = as the cursor moves in files that you "
            "edited within five minutes, not on battery; `always` = wherever the cursor goes; `never` = only as you type"
        ),
    ] = "editing"
    next_edit_model: Annotated[
        str,
        Advanced(
            "Model of next edits, named as `model`, in a core of its own: Zeta 2, Zeta 2.1 or Sweep; `FORMAT:MODEL` "
            "(`zeta-2`, `zeta-2.1`, `sweep-a`, `sweep-b`) if the name does not tell the format; empty = no next edits"
        ),
    ] = ""
    next_edit_engine: Annotated[
        str,
        Advanced(
            "What runs the model of next edits: as `engine`, or the address `wss://HOST:PORT` of a core that runs it, "
            "whose token is `coreToken`"
        ),
    ] = LOCAL_ENGINE
    statistics: Annotated[
        bool, About("Count suggestions and typed characters on this machine, for `midfill stats`; stores no text")
    ] = True
    log_level: Annotated[LogLevel, Advanced("Lowest level of messages that the language server logs")] = "warning"


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


def chosen_settings(settings: CoreSettings, names: Iterable[str]) -> dict[str, object]:
    """These settings as an editor's JSON object says them."""
    return {json_name(name): getattr(settings, name) for name in names}


def settings_table(*, advanced: bool = False) -> str:
    """The table, in Markdown, of the settings, or of the advanced ones: names, type, default and meaning."""
    rows = ["| in the editor | option | type | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for setting in filter(lambda setting: setting.advanced == advanced, SETTINGS.values()):
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
    secret: bool  # its value is never shown

    @property
    def advanced(self) -> bool:
        """Whether no editor's page shows it."""
        return isinstance(self.about, Advanced)

    @property
    def expected(self) -> str:
        """The kind of value, in words."""
        if get_origin(self.kind) is Literal:
            return "one of " + ", ".join(f"`{choice}`" for choice in get_args(self.kind))
        if self.choices:
            return "list of " + ", ".join(f"`{choice}`" for choice in self.choices)
        return {int: "whole number", bool: "true or false", str: "text"}.get(self.kind, "list of names")

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that a list may hold; none if any may."""
        items = get_args(self.kind) if get_origin(self.kind) is tuple else ()
        return get_args(items[0]) if items and get_origin(items[0]) is Literal else ()


def _read_fields() -> Mapping[str, Setting]:
    hints = {name: get_args(hint) for name, hint in get_type_hints(Settings, include_extras=True).items()}
    return {
        field.name: Setting(field.name, kind, field.default, about, secret=not field.repr)
        for field in fields(Settings)
        for kind, about in [hints[field.name]]
    }


SETTINGS = _read_fields()
"""Every setting, by its name."""

CORE_SETTINGS = tuple(field.name for field in fields(CoreSettings) if not SETTINGS[field.name].secret)
"""The core's settings that command lines and address files may show."""


def local_path(name: str) -> Path | None:
    """The file or folder that a user names; None if it is not there, or if the name can be no path."""
    try:
        path = Path(name).expanduser()
        return path.resolve() if name and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, another user's home, a NUL
        return None
