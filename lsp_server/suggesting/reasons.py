"""The reasons why a place gets no suggestion, in the words that every client shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lsp_server.core_client.link import LinkStatus
from lsp_server.exclusion.ignore_files import Verdict
from protocol.errors import MidfillError

Switch = Literal["", "workspace", "buffer", "editor", "setting", "hidden"]
"""The switch that has suggestions off in the client itself; empty without one."""

SNOOZE_COMMAND = "midfill.snooze"
RESUME_COMMAND = "midfill.resume"
SUGGEST_HERE_COMMAND = "midfill.suggestHere"
SUGGEST_NOW_COMMAND = "midfill.suggestNow"
RESTART_COMMAND = "midfill.restartCore"


@dataclass(frozen=True, slots=True)
class Action:
    """A remedy for a reason: a command of the server, with its arguments."""

    title: str
    command: str
    arguments: tuple[str, ...] = ()
    detail: str = ""  # what it means, for menus


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a document gets no suggestions, or why its last request got none."""

    kind: str  # for icons and programs: "excluded", "loading", ...
    text: str  # a few words, for a status bar
    explanation: str  # in sentences of plain text
    actions: tuple[Action, ...] = ()
    lasts: bool = True  # whether further requests meet it too; False if it concerns only the last request


_RESTART = Action("Restart the core", RESTART_COMMAND)
_RECONNECT = Action("Try again now", RESTART_COMMAND)
_SWITCHED_OFF = {
    "workspace": "Suggestions are switched off in this workspace.",
    "buffer": "Suggestions are switched off in this buffer.",
    "editor": "Suggestions are switched off in this editor.",
    "setting": "The editor's setting midfill.enabled is off for this document.",
}
_HIDDEN = Reason(
    "manual", "on request", "The editor shows suggestions only on request: its setting editor.inlineSuggest.enabled is off."
)
ON_REQUEST = Reason("manual", "on request", "Suggestions come only on request: the setting automatic is off.")
OUT_OF_STEP = Reason(
    "lost",
    "reopen this file",
    "midfill has lost track of this document: a change did not reach it, or a line has more than 10 million "
    "characters. Close the document and open it again.",
)
NOTHING_PREDICTED = Reason("nothing", "nothing to add", "The model predicts that nothing is to be added here.", lasts=False)
POPUP_ENTRY = Reason(
    "popup",
    "popup entry",
    "The entry selected in the editor's completion popup has several lines, and a suggestion cannot extend it.",
    lasts=False,
)


def switched_off(switch: Switch) -> Reason | None:
    """The client does not request suggestions, or does not show them."""
    if switch == "":
        return None
    return _HIDDEN if switch == "hidden" else Reason("off", "off", _SWITCHED_OFF[switch])


def snoozed(until: str) -> Reason:
    """The user has snoozed suggestions; `until` is a time of day, or empty for the rest of the session."""
    when = f"until {until}" if until else "until the language server restarts"
    said = f"Suggestions are snoozed {when}; those that you request by hand still come."
    return Reason("snoozed", f"snoozed {when}", said, (Action("Resume now", RESUME_COMMAND),))


def language_off(language_id: str) -> Reason:
    """The setting `disabledLanguages` has the document's language."""
    said = f"Suggestions are off for {language_id}: the setting disabledLanguages has this language."
    return Reason("off", f"off for {language_id}", said)


def long_line(limit: int) -> Reason:
    """The cursor's line is too long."""
    return Reason("long", "line too long", f"The cursor's line has more than {limit:,} characters.")


def excluded(verdict: Verdict, uri: str) -> Reason:
    """A rule keeps the document out of prompts."""
    said = f"This file gets no suggestions, and its text enters no prompt: {verdict.rule}."
    detail = "Its text enters its own prompts, and no others, until it is closed."
    if verdict.cause == "secret":
        detail = f"Only if its name misleads and it holds no secret. {detail}"
    here = Action("Suggest here all the same", SUGGEST_HERE_COMMAND, (uri,), detail)
    return Reason("excluded", "excluded", said, () if verdict.cause in ("other", "unchecked") else (here,))


def of_core(status: LinkStatus) -> Reason | None:
    """The core cannot answer now; None if it can. An unloaded core can: a request loads its model."""
    core, model, message = status.core, status.core.model if status.core else "", status.message
    match status.state:
        case "ready":
            return None
        case "unloaded":
            said = f"{model} is not in memory. The next key loads it."
            return Reason("unloaded", "model unloaded", said, lasts=False)
        case "loading":
            percent = "" if core is None or core.progress is None else f" {core.progress:.0%}".replace("%", " %")
            step = f" ({core.detail})" if core is not None and core.detail else ""
            said = f"Loading {model}{percent}{step}. Suggestions follow by themselves."
            return Reason("loading", f"loading{percent}", said)
        case "failed":
            return Reason("failed", "failed", f"The core failed: {message or 'it gave no reason'}.", (_RESTART,))
        case "stopped" if message:  # without a message, another core is about to start
            return Reason("stopped", "stopped", f"No core is running: {message}.", (_RESTART,))
        case "starting" if status.remote and not message:
            return Reason("starting", "connecting", "Connecting to the core that the setting core names.")
        case "starting" if status.remote:
            said = f"The core that the setting core names cannot be reached: {message}. midfill goes on trying."
            return Reason("failed", "core unreachable", said, (_RECONNECT,))
    return Reason("starting", "starting", " ".join(filter(None, ("The core is starting.", message and f"Before: {message}."))))


def reading(tokens: int, of: int) -> Reason:
    """The core computes the document's prompt, and that takes long."""
    said = f"The model is reading the prompt: {tokens} of {of} tokens. Suggestions follow by themselves."
    return Reason("reading", f"reading {tokens}/{of} tokens", said)


def request_failed(error: MidfillError) -> Reason:
    """The core answered the last request with an error."""
    return Reason("failed", "request failed", f"The last request failed: {error}.", lasts=False)


def too_late(seconds: float) -> Reason:
    """The core did not become ready in time."""
    return Reason("late", "no answer", f"The core was not ready within {seconds:.0f} s.", lasts=False)


def nothing_left(rule: str) -> Reason:
    """A rule of midfill's took away all of what the model wrote; `rule` is a sentence that says which."""
    return Reason("filtered", "not shown", f"The model wrote a suggestion, which midfill does not show: {rule}", lasts=False)


def how_unlikely(percent: float, limit: int) -> str:
    """Why a suggestion of this probability is held back, as the end of a sentence."""
    return f"the average probability of its tokens is {int(percent)} %, below the setting holdBackPercent ({limit})."


def unlikely(percent: float, limit: int, uri: str) -> Reason:
    """The suggestion is held back."""
    said = f"A suggestion is not shown, since it is unlikely: {how_unlikely(percent, limit)}"
    return Reason("unlikely", "unlikely", said, (Action("Show it", SUGGEST_NOW_COMMAND, (uri,)),), lasts=False)


def too_little(uri: str) -> Reason:
    """The suggestion is short, or its end so unlikely, that it is not worth an interruption."""
    said = "The model is sure of only a few characters, too few to interrupt you for."
    return Reason("unlikely", "unsure", said, (Action("Show it", SUGGEST_NOW_COMMAND, (uri,)),), lasts=False)


def rivals(names: Sequence[str]) -> Reason | None:
    """Other extensions suggest in this editor too, and the editor may show theirs; None without any."""
    if not names:
        return None
    verb = "suggests" if len(names) == 1 else "suggest"
    said = f"{' and '.join(names)} also {verb} in this editor. The editor shows one suggestion, and may choose theirs."
    return Reason("rival", "another extension", said, lasts=False)
