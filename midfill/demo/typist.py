"""The typist: turns a script into key presses, one at a time, and accepts suggestions that say what is next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from midfill.demo.editor import Editor, KeyPress
from midfill.demo.script import Action, Backspace, Jump, TryOut
from midfill.headless.lsp_values import Suggestion

# Nobody reaches for the accept key for less, or before having read what is shown.
_WORTH_ACCEPTING = 5
_KEYS_TO_READ = 2


class Typist:
    """Plays a script in an editor. `shown` is the suggestion on the screen; whoever shows it sets it."""

    def __init__(self, editor: Editor) -> None:
        self.shown: Suggestion | None = None
        self._editor = editor
        self._agreed = 0  # for how many keys the suggestion has said what is next

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
        """The suggestion shown, if it has said for a few keys what is next, and leaves no bracket behind too many."""
        if self.shown is None or len(self.shown.text) < _WORTH_ACCEPTING or not text.startswith(self.shown.text):
            self._agreed = 0
            return None
        self._agreed += 1
        behind = self._editor.document.lines[self.shown.end.line][self.shown.end.column :].rstrip("\n")
        left_to_type = text.removeprefix(self.shown.text).partition("\n")[0]
        return self.shown if self._agreed > _KEYS_TO_READ and behind in left_to_type else None

    def _indent(self, columns: int) -> Iterator[KeyPress]:
        """From the indentation that the editor gave to the one that is wanted."""
        while self._editor.cursor.column > columns:
            yield self._editor.backspace()
        while self._editor.cursor.column < columns:
            yield self._editor.type_character("\t")
