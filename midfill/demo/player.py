"""Plays the script against a language server at a typist's pace, and reports each keystroke with its cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from lsp_server.editing.documents import Position
from midfill.demo.editor import Editor, KeyPress
from midfill.demo.script import Action
from midfill.demo.typist import Typist
from midfill.headless.lsp_process import LanguageServerFailed
from midfill.headless.lsp_session import LspSession
from midfill.headless.lsp_values import Answer, Suggestion, UsageReport

_ANSWER_TIMEOUT_S = 60.0
_AHEAD_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Keystroke:
    """One key press with its suggestion and cost, and the editor's state after it.

    `cost` is None if the server had nothing to compute. A jump requests no suggestion: the server makes the
    place resident ahead of the next key, and `cost` is that of this ahead work.
    """

    press: KeyPress
    cursor: Position
    lines: tuple[str, ...]
    suggestion: Suggestion | None
    milliseconds: float  # time to suggestion; 0 for a jump
    cost: UsageReport | None


async def play(
    session: LspSession, editor: Editor, script: Iterable[Action], seconds_per_key: float
) -> AsyncIterator[Keystroke]:
    """Every keystroke of the script, once it is answered.

    The next key comes `seconds_per_key` after the last one, or with its answer if that takes longer, so that each
    keystroke has a cost to show. (Editors do not wait: they cancel.)
    """
    typist = Typist(editor)
    uri = editor.document.uri
    for press in typist.keys(script):
        due = time.monotonic() + seconds_per_key
        if press.edit is not None:
            session.change(uri, [press.edit])
        answer = await (_jump if press.jumped else _ask)(session, editor)
        typist.shown = answer.suggestions[0] if answer.suggestions else None
        lines = tuple(editor.document.lines)
        yield Keystroke(press, editor.cursor, lines, typist.shown, answer.milliseconds, answer.cost)
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _jump(session: LspSession, editor: Editor) -> Answer:
    session.move_cursor(editor.document.uri, editor.cursor)
    return Answer((), 0.0, await session.wait_for_ahead(_AHEAD_TIMEOUT_S))


async def _ask(session: LspSession, editor: Editor) -> Answer:
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            return await session.suggest(editor.document.uri, editor.cursor)
    except TimeoutError as error:
        raise LanguageServerFailed(f"no answer to a keystroke within {_ANSWER_TIMEOUT_S:.0f} s") from error
