"""Draws the demo's editor: highlighted code around the cursor, with the suggestion as ghost text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.syntax import Syntax
from rich.text import Text

from lsp_server.editing.documents import Position
from midfill.demo.player import Keystroke
from midfill.headless.lsp_values import Suggestion

GHOST = "italic bright_black"
_HIGHLIGHTER = Syntax("", "python", theme="ansi_dark", background_color="default")


def code_view(keystroke: Keystroke, height: int) -> Text:
    """`height` lines with their numbers, the cursor a third from the top."""
    code = _HIGHLIGHTER.highlight("".join(keystroke.lines)).split("\n", allow_blank=True)
    cursor = keystroke.cursor
    first = max(0, min(cursor.line - height // 3, len(keystroke.lines) - height))
    rows: list[Text] = []
    for number in range(first, min(first + height, len(code))):
        here = number == cursor.line
        pieces = cursor_line(code[number], cursor, keystroke.suggestion) if here else [code[number]]
        rows.append(Text.assemble((f"{number + 1:4} ", "bold" if here else "bright_black"), pieces[0]))
        rows += [Text.assemble("     ", piece) for piece in pieces[1:]]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(rows[:height])


def cursor_line(line: Text, cursor: Position, suggestion: Suggestion | None) -> Sequence[Text]:
    """The cursor's line with the ghost text in it; it may become several lines."""
    before, after = line[: cursor.column], line[cursor.column :]
    if suggestion is None:
        block, rest = (after[:1], after[1:]) if after else (Text(" "), Text())
        block.stylize("reverse")
        return [Text.assemble(before, block, rest)]
    tail = line[suggestion.end.column :]
    ghost = [Text(part, style=GHOST) for part in suggestion.text.split("\n")]
    ghost[0].stylize("reverse", 0, 1)
    ghost[0] = Text.assemble(before, ghost[0])
    ghost[-1] = Text.assemble(ghost[-1], tail)
    return ghost
