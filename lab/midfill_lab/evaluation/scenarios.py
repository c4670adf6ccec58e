"""Scenarios of next edits on disk: a document, a cursor and the history; the ideal next state; recorded answers.

The format is that of cursortab.nvim's evaluation (github.com/cursortab/cursortab.nvim, MIT): `NAME.txtar` files, and
beside each a folder `NAME` with the recorded requests and answers of models, `MODEL.ndjson`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lsp_server.documents.documents import Position, split_lines
from lsp_server.next_edit.formats import BadAnswer, LaidPrompt, NewRegion, NextEditFormat, ended
from lsp_server.next_edit.history import Event
from lsp_server.next_edit.regions import RegionSize
from lsp_server.next_edit.sweep import SWEEP_A
from lsp_server.next_edit.zeta import ZETA_2, Zeta
from protocol.errors import BadInput
from protocol.messages import FinishReason

_SECTION = re.compile(r"^-- (.+?) --\n", re.MULTILINE)
_EVENT = re.compile(r"^<\|file\|> ([^\n]*)\n<\|old\|>\n(.*?)<\|new\|>\n(.*?)(?=^<\|file\|> |\Z)", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"(\d+):(\d+)")
_CURSOR_MARK = re.compile(r"<\|user_cursor\|>|<\|user_cursor_is_here\|>|<\|cursor\|>")
_REGION_OF_ZETA_1 = re.compile(r"\s*<\|editable_region_start\|>\n(.*?)(?:\n?<\|editable_region_end\|>)?\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A document, its history, and the cursors at which a next edit is asked for.

    `expected` is the ideal next state, None if nothing should be shown. `cursors` are the places as written: a row
    from 0 and a column in bytes, which may lie beyond the line's end.
    """

    name: str
    path: str
    text: str
    cursors: tuple[tuple[int, int], ...]
    events: tuple[Event, ...]
    expected: str | None
    modified: bool
    by_command: bool

    def clamped(self, cursor: tuple[int, int]) -> Position:
        """The cursor's place, at most the end of its line."""
        row, column = cursor
        line = self.text.split("\n")[row]
        return Position(row, len(line.encode()[:column].decode(errors="ignore")))

    def carried(self, cursor: tuple[int, int]) -> Position:
        """The cursor's place, carried into the next lines beyond its line's end."""
        row, column = cursor
        start = sum(len(line.encode()) + 1 for line in self.text.split("\n")[:row])
        before = self.text.encode()[: start + column].decode(errors="ignore")
        return Position(before.count("\n"), len(before) - before.rfind("\n") - 1)


def read_scenarios(folder: Path) -> list[Scenario]:
    """The scenarios in the folder, by name; BadInput, naming the file, if one is none, or if there are none."""
    files = sorted(folder.glob("*.txtar"))
    if not files:
        raise BadInput(f"{folder} has no scenarios (*.txtar)")
    return [_read_scenario(file) for file in files]


def _read_scenario(file: Path) -> Scenario:
    try:
        head, *rest = _SECTION.split(file.read_bytes().decode())
        sections = {name: text.removesuffix("\n") for name, text in zip(rest[::2], rest[1::2], strict=True)}
        keys = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        cursors = [(int(keys["row"]), int(keys["col"]))]
        cursors += [(int(row), int(column)) for row, column in _PLACE.findall(keys.get("cursor-positions", ""))]
        text = sections["buffer.txt"]
        path, steps = keys["file"], sections["steps"]
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{file} is not a scenario: {error!r}") from error
    lines = text.count("\n") + 1
    if outside := next((row for row, _ in cursors if not 1 <= row <= lines), None):
        raise BadInput(f"{file}: row {outside} is not in its text of {lines} lines")
    return Scenario(
        name=file.stem,
        path=path,
        text=text,
        cursors=tuple((row - 1, column) for row, column in cursors),
        events=tuple(_events(sections.get("history", ""), split_lines(text))),
        expected=sections.get("expected"),
        modified=keys.get("modified") != "false",
        by_command="request-completion manual" in steps,
    )


def _events(text: str, lines: Sequence[str]) -> Iterator[Event]:
    """The events, each at its place in the document, if its new lines stand there."""
    for path, old, new in _EVENT.findall(ended(text) if text else ""):
        old_lines, new_lines = (tuple(split_lines(side)[:-1]) for side in (old, new))
        count = len(new_lines)
        places = (first for first in range(len(lines)) if count and tuple(lines[first : first + count]) == new_lines)
        yield Event(path, next(places, 0), old_lines, new_lines)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The first answer that was recorded of a model, and the prompt that it answers."""

    prompt: str
    text: str
    finish_reason: FinishReason

    def cursor(self, scenario: Scenario) -> tuple[int, int] | None:
        """The one of the scenario's cursors that the prompt shows; None if it shows none of them."""
        found = _CURSOR_MARK.search(self.prompt)
        behind = "" if found is None else self.prompt[found.end() :]
        for cursor in scenario.cursors:
            for place in (scenario.clamped(cursor), scenario.carried(cursor)):
                lines = split_lines(scenario.text)
                rest = lines[place.line][place.column :] + "".join(lines[place.line + 1 :])
                if found is not None and behind.startswith(ended(rest)):
                    return cursor
        return None


def read_answers(folder: Path, scenario: Scenario, model: str) -> list[Recorded]:
    """What was recorded of the model, in order; empty without a recording. BadInput names a file that is none."""
    file = folder / scenario.name / f"{model}.ndjson"
    if not file.is_file():
        return []
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        bodies = [(row["kind"], json.loads(base64.b64decode(row["body_b64"]))) for row in rows if "body_b64" in row]
        prompts = [body["prompt"] for kind, body in bodies if kind == "request"]
        choices = [body["choices"][0] for kind, body in bodies if kind == "response"]
        return [
            Recorded(prompt, choice["text"], "length" if choice["finish_reason"] == "length" else "stop")
            for prompt, choice in zip(prompts, choices, strict=True)
        ]
    except (OSError, ValueError, KeyError, IndexError, TypeError, binascii.Error) as error:
        raise BadInput(f"{file} is not a recording: {error!r}") from error


@dataclass(frozen=True, slots=True)
class _Zeta1(Zeta):
    """Reads the answers of Zeta 1; its prompts are not laid."""

    def read(self, prompt: LaidPrompt, answer: str, finish_reason: FinishReason) -> NewRegion:  # noqa: ARG002
        """See NextEditFormat. The answer alone is read."""
        found = _REGION_OF_ZETA_1.fullmatch(answer)
        if found is None or finish_reason == "length":
            raise BadAnswer("the answer is no region")
        return NewRegion(ended(found[1]))


@dataclass(frozen=True, slots=True)
class Recorder:
    """How a model's prompts were laid: in which format, and where a cursor beyond its line's end was put."""

    layout: NextEditFormat
    carries: bool

    def place(self, scenario: Scenario, cursor: tuple[int, int]) -> Position:
        """Where the prompt shows the cursor."""
        return scenario.carried(cursor) if self.carries else scenario.clamped(cursor)

    def lay(self, scenario: Scenario, place: Position) -> LaidPrompt:
        """The prompt as it was recorded, with the cursor at the place."""
        lines = split_lines(scenario.text)
        events = [replace(event, first=0) for event in scenario.events]
        anchor = self.layout.anchor(scenario.path, lines, place.line, events)
        return self.layout.lay(anchor, lines, place)


_WHOLE = RegionSize(whole=True)
_SWEEP = replace(SWEEP_A, size=_WHOLE, numbers="in file", given="to cursor", diff_paths=True, context_lines=0, reverts=False)


def recorder_of(model: str) -> Recorder:
    """How the prompts of the recorded model were laid; BadInput for an unknown one."""
    if model.startswith("sweep-next-edit"):
        return Recorder(_SWEEP, carries=True)
    if model == "zeta-2":
        return Recorder(replace(ZETA_2, size=_WHOLE), carries=False)
    if model == "zeta":
        return Recorder(_Zeta1(size=_WHOLE), carries=False)
    raise BadInput(f"no format is known of answers by {model!r}: zeta, zeta-2 and sweep-next-edit-SIZE have one")
