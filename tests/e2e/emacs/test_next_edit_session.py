"""A recorded session typed into Emacs, while next edits are offered, jumped to, accepted, undone and refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from midfill.replay.trace import Patch
from tests.e2e.emacs.conftest import EMACS
from tests.e2e.emacs.test_ghost_text import MIDFILL_EL
from tests.e2e.neovim.driver import soon, until
from tests.e2e.neovim.terminal import Terminal, running
from tests.e2e.recorded_session import SERVER, Model, cores, read_session
from tests.e2e.session_user import User

INIT = """
(setq auto-save-default nil make-backup-files nil create-lockfiles nil inhibit-startup-screen t)
(setq require-final-newline nil)
(menu-bar-mode -1)
(electric-indent-mode -1)
(setq server-socket-dir "{home}" server-name "session")
(server-start)
(add-to-list 'load-path "{folder}")
(require 'midfill)
(setq midfill-command '({command}) midfill-settings '({settings}))
(add-hook 'text-mode-hook #'midfill-mode)
"""
# The text is written to a file, since what emacsclient prints is quoted.
LOOK = """(with-current-buffer "session.txt"
  (write-region nil nil "{file}" nil 'quiet)
  (list (point) (if midfill-next-edit--shown 1 0) (if midfill--open 1 0)))"""
LONGEST_TYPED = 40  # what is longer was pasted, or deleted at once
AT_MOST = 2000  # characters of keys that tmux is given at once


class Hands:
    """Types through a terminal, and looks through Emacs's server."""

    def __init__(self, terminal: Terminal, home: Path) -> None:
        self.terminal, self.home = terminal, home
        self.cursor = 0

    def type(self, text: str, patch: Patch) -> None:
        typed = patch.inserted.replace("\n", "\r").replace("\t", "\x11\t")
        delete = "\x04" * patch.deleted
        if len(typed) > LONGEST_TYPED:
            typed = f"\x1b[200~{patch.inserted}\x1b[201~"  # as terminals paste
        if len(delete) > LONGEST_TYPED:
            delete = f"\x15{patch.deleted}\x04"
        self._press(f"\x1bgc{patch.position + 1}\r" + delete + typed)

    def rest(self) -> None:
        pass

    def text(self) -> str:
        self.look()
        return (self.home / "seen").read_text(encoding="utf-8")

    def is_shown(self) -> bool:
        return self.look()[1] == 1

    def go(self) -> None:
        self.cursor = self.look()[0]
        self._press("\t")

    def has_gone(self) -> bool:
        return self.look()[0] != self.cursor

    def refuse(self) -> None:
        self._press("\x07")

    def undo(self) -> None:
        self._press("\x1f")

    def look(self) -> list[int]:
        """The cursor, whether an edit is shown, and whether the document is open at the server."""
        expression = LOOK.format(file=self.home / "seen")
        command = ["emacsclient", "-s", str(self.home / "session"), "-e", expression]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [int(number) for number in shown.strip("()\n").split()]

    def _press(self, keys: str) -> None:
        for start in range(0, len(keys), AT_MOST):
            self.terminal.type_text(keys[start : start + AT_MOST])


def test_the_text_is_what_was_typed_and_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    session = read_session()
    model = Model(session.texts)
    with cores(model) as (completions, edits):
        settings = {":core": completions.url, ":coreToken": "secret", ":nextEditModel": "sweep-b:any"}
        settings |= {":nextEditEngine": edits.url}
        init, file = tmp_path / "init.el", tmp_path / "session.txt"
        script = INIT.format(
            home=tmp_path,
            folder=MIDFILL_EL,
            command=" ".join(json.dumps(word) for word in (sys.executable, "-c", SERVER, "lsp")),
            settings=" ".join(f"{name} {json.dumps(value)}" for name, value in settings.items()),
        )
        init.write_text(script, encoding="utf-8")
        file.write_text(session.texts[0], encoding="utf-8")
        command = [EMACS, "-nw", "-Q", "-l", str(init), str(file)]
        with running(Path(str(shutil.which("tmux"))), tmp_path, command) as terminal:
            hands = Hands(terminal, tmp_path)
            until(lambda: (tmp_path / "session").exists())
            assert soon(lambda: hands.look()[2] == 1, 60.0), terminal.screen()
            user = User(session, model, hands)
            user.run()
    assert user.done.keys() >= {"kept", "undone"}
