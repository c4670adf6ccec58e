"""The typist: converts a script into key presses, one at a time, and accepts suggestions that match the script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from midfill.demo.editor import Editor, KeyPress
from midfill.demo.script import Action, Backspace, Jump, TryOut
from midfill.headless.lsp_values import Suggestion

# The typist accepts no suggestion of fewer characters, and none before some keys' time to read it.
_WORTH_ACCEPTING = 5
_KEYS_TO_READ = 2


class Typist:
    """Plays a script in an editor. `shown` is the suggestion on the screen; the caller sets it."""

    def __init__(self, editor: Editor) -> None:
        self.shown: Suggestion | None = None
        self._editor = editor
        self._agreed = 0  # for how many keys the suggestion has matched the script

    def keys(self, script: Iterable[Action]) -> Iterator[KeyPress]:
        """Every key press, applied when it is yielded."""
        for action in script:
            if isinstance(action, Jump):
                yield self._editor.move(self._editor.place_behind(action.behind))
            elif isinstance(action, Backspace):
                for _ in range(action.count):
                    yield self._editor.backspace()
            elif isinstance(action, TryOut):
                yield from self._try_out()
            else:
                yield from self._type(action.text, accepting=action.accepting)

    def _type(self, text: str, *, accepting: bool) -> Iterator[KeyPress]:
        self._agreed = 0
        while text:
            if accepting and (suggestion := self._worth_accepting(text)) is not None:
                yield self._editor.accept(suggestion.text, suggestion.end)
                text = text.removeprefix(suggestion.text)
                continue
            character, text = text[0], text[1:]
            yield self._editor.type_character(character)
            if character == "\n" and text.lstrip(" ") and not text.startswith("\n"):
                yield from self._indent(len(text) - len(text.lstrip(" ")))
                text = text.lstrip(" ")

    def _try_out(self) -> Iterator[KeyPress]:
        if self.shown is not None:
            yield self._editor.accept(self.shown.text, self.shown.end)
            yield self._editor.undo()

    def _worth_accepting(self, text: str) -> Suggestion | None:
        """The shown suggestion, if it has matched the script for some keys, and leaves no surplus bracket."""
        if self.shown is None or len(self.shown.text) < _WORTH_ACCEPTING or not text.startswith(self.shown.text):
            self._agreed = 0
            return None
        self._agreed += 1
        behind = self._editor.document.lines[self.shown.end.line][self.shown.end.column :].rstrip("\n")
        left_to_type = text.removeprefix(self.shown.text).partition("\n")[0]
        return self.shown if self._agreed > _KEYS_TO_READ and behind in left_to_type else None

    def _indent(self, columns: int) -> Iterator[KeyPress]:
        """Change the indentation that the editor made to `columns`."""
        while self._editor.cursor.column > columns:
            yield self._editor.backspace()
        while self._editor.cursor.column < columns:
            yield self._editor.type_character("\t")
