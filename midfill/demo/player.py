"""Types a recorded session at a typist's pace, accepting what is suggested of it, and reports each keystroke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lsp_server.editing.documents import Document, Edit, Position, split_lines
from lsp_server.editing.spans import end_of
from midfill.headless.lsp_process import LanguageServerFailed
from midfill.headless.lsp_values import Suggestion, UsageReport
from midfill.replay.targets import SessionTarget
from midfill.replay.trace import Step

Kind = Literal["key", "jump", "accept", "undo"]

_ANSWER_TIMEOUT_S = 60.0
_AHEAD_TIMEOUT_S = 5.0
# No suggestion of fewer characters is accepted, and none before some keys' time to read it; the first keys of all are
# typed by hand, so that their costs are seen.
_WORTH_ACCEPTING = 5
_KEYS_TO_READ = 2
_KEYS_BY_HAND = 30


@dataclass(frozen=True, slots=True)
class Keystroke:
    """One key press as the language server heard it, with its suggestion and cost.

    `cost` is None if the server had nothing to compute. A jump requests no suggestion: the server makes the
    place resident ahead of the next key, and `cost` is that of this ahead work.
    """

    label: str
    kind: Kind
    step: Step  # its edits, with the cursor and the text after them
    suggestion: Suggestion | None
    milliseconds: float  # time to suggestion; 0 for a jump
    cost: UsageReport | None

    @property
    def cursor(self) -> Position:
        return self.step.cursor

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(split_lines(self.step.text))


async def play(
    target: SessionTarget, text: str, steps: Sequence[Step], seconds_per_key: float
) -> AsyncIterator[Keystroke]:
    """Every keystroke of a session that begins with `text`, once it is answered.

    A suggestion is accepted if the session types it next. Where the session inserts a text at once and takes it back,
    the suggestion that is shown, whatever its text, is accepted and undone in its place.

    The next key comes `seconds_per_key` after the last one, or with its answer if that takes longer, so that each
    keystroke has a cost to show. (Editors do not wait: they cancel.)
    """
    typed, agreed, index = 0, 0, 0
    cursor = Position(0, 0)
    shown: Suggestion | None = None
    while index < len(steps):
        step = steps[index]
        todo: list[tuple[str, Kind, Step]] = []
        if step.moved_to is not None and step.moved_to.line != cursor.line:
            todo.append((f"jump to {step.moved_to.line + 1}", "jump", Step(None, (), step.moved_to, text)))
            shown = None
        reached = _steps_said(steps, index, text, shown)
        agreed = agreed + 1 if reached else 0
        if _takes_back(steps, index):
            index += 2
            if shown is not None:
                accepted = _accepting(text, shown)
                back = Edit(shown.start, accepted.cursor, _between(text, shown))
                todo += [("accept", "accept", accepted), ("undo", "undo", Step(None, (back,), cursor, text))]
        elif shown is not None and agreed > _KEYS_TO_READ and typed >= _KEYS_BY_HAND:
            todo.append(("accept", "accept", _accepting(text, shown)))
            index, agreed = index + reached, 0
        else:
            todo.append((_label(step), "key", step))
            index, typed = index + 1, typed + 1
        for label, kind, pressed in todo:
            due = time.monotonic() + seconds_per_key
            keystroke = await _press(target, label, kind, pressed)
            text, cursor, shown = pressed.text, pressed.cursor, keystroke.suggestion
            yield keystroke
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _press(target: SessionTarget, label: str, kind: Kind, step: Step) -> Keystroke:
    if kind == "jump":
        return Keystroke(label, kind, step, None, 0.0, await target.move(step.cursor, _AHEAD_TIMEOUT_S))
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            await target.play(step, tell_move=False)
    except TimeoutError as error:
        raise LanguageServerFailed(f"no answer to a keystroke within {_ANSWER_TIMEOUT_S:.0f} s") from error
    answer = target.answer
    suggestion = answer.suggestions[0] if answer.suggestions else None
    return Keystroke(label, kind, step, suggestion, answer.milliseconds, answer.cost)


def _steps_said(steps: Sequence[Step], index: int, text: str, shown: Suggestion | None) -> int:
    """How many steps from `index` on write exactly the suggestion; 0 if they write or delete something else."""
    if shown is None or len(shown.text) < _WORTH_ACCEPTING:
        return 0
    wanted = _accepting(text, shown).text
    for count, step in enumerate(steps[index : index + 2 * len(shown.text)], start=1):
        if not step.edits[-1].text:
            return 0
        if step.text == wanted:
            return count
    return 0


def _accepting(text: str, shown: Suggestion) -> Step:
    """The step that accepts a suggestion for this text."""
    edit = Edit(shown.start, shown.end, shown.text)
    document = Document.from_text("", "", 0, text)
    document.apply(edit)
    return Step(None, (edit,), end_of(shown.start, shown.text), document.text)


def _between(text: str, shown: Suggestion) -> str:
    return Document.from_text("", "", 0, text).slice(shown.start, shown.end)


def _takes_back(steps: Sequence[Step], index: int) -> bool:
    """Whether the step inserts several characters at once, and the next one deletes them."""
    if index + 1 >= len(steps):
        return False
    (edit, *more), (back, *_) = steps[index].edits, steps[index + 1].edits
    whole = (edit.start, end_of(edit.start, edit.text), "")
    return len(edit.text) > 1 and not more and (back.start, back.end, back.text) == whole


def _label(step: Step) -> str:
    """The key that makes this step."""
    text = step.edits[-1].text  # behind it, in the edits before, stands what the editor closed
    if not text or text[0] == "\n":
        return "Enter" if text else "backspace"
    if len(step.edits) > 1:
        return f"{text} auto-closed"
    return text if text.strip() else "space" if len(text) == 1 else "Tab"
