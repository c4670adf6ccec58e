"""Next edits in a real Emacs in a terminal, with a scripted language server: drawn, reached and applied."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.emacs.conftest import EMACS
from tests.e2e.emacs.test_ghost_text import MIDFILL_EL
from tests.e2e.neovim.driver import soon, until
from tests.e2e.neovim.script import Script
from tests.e2e.neovim.terminal import Terminal, running

INIT = """
(setq auto-save-default nil make-backup-files nil create-lockfiles nil inhibit-startup-screen t)
(setq vc-handled-backends nil) ; which would load the faces of diffs
(menu-bar-mode -1)
(add-to-list 'load-path "{folder}")
(require 'midfill)
(setq midfill-command '({command}))
(add-hook 'prog-mode-hook #'midfill-mode)
"""
COMMANDS = ["midfill.nextEditAccepted", "midfill.nextEditRefused"]
TEXT = "a = 1\nb = 2\nc = aa\nd = 4\n"
Open = Callable[..., Terminal]


def edit_of(line: int, start: int, end: int, text: str, lines: int = 0) -> dict[str, Any]:
    span = {"start": {"line": line, "character": start}, "end": {"line": line + lines, "character": end}}
    return {"text": text, "range": span}


PARTS = [edit_of(0, 4, 5, "10"), edit_of(1, 4, 5, "20"), edit_of(1, 5, 5, "\nbb = 21")]
LINES = edit_of(0, 4, 5, "10\nb = 20\nbb = 21", lines=1) | {"parts": PARTS}


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def open_emacs(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setenv("HOME", str(tmp_path))
    with ExitStack() as stack:

        def opened(text: str, before: str = "") -> Terminal:
            words = " ".join(json.dumps(word) for word in script.command)
            init, file = tmp_path / "init.el", tmp_path / "demo.py"
            init.write_text(before + INIT.format(folder=MIDFILL_EL, command=words))
            file.write_text(text)
            command = [EMACS, "-nw", "-Q", "-l", str(init), str(file)]
            terminal = stack.enter_context(running(Path(str(shutil.which("tmux"))), tmp_path, command))
            until(lambda: script.told("textDocument/didOpen"))
            return terminal

        yield opened


def line(terminal: Terminal, number: int) -> str:
    return terminal.screen().split("\n")[number].rstrip()


def cursor(terminal: Terminal) -> str:
    """Its column and line on the screen, from 0."""
    return terminal.run("display-message", "-p", "#{cursor_x},#{cursor_y}").strip()


def told(script: Script, command: str) -> list[Any]:
    return [each["arguments"] for each in script.told("workspace/executeCommand") if each["command"] == command]


def test_tab_jumps_and_applies(open_emacs: Open, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    emacs = open_emacs(TEXT)
    emacs.type_text("x")
    until(lambda: line(emacs, 2) == "c = aabb")  # what goes and what comes
    until(lambda: script.told("textDocument/didShowInlineEdit"))
    assert script.told("textDocument/didShowInlineEdit")[0]["item"]["command"]["arguments"] == [1]
    emacs.type("Tab")
    until(lambda: cursor(emacs) == "4,2")
    until(lambda: line(emacs, 2) == "c = aabb")
    script.answer("", commands=COMMANDS)
    emacs.type("Tab")
    until(lambda: line(emacs, 2) == "c = bb")
    until(lambda: told(script, COMMANDS[0]) == [[1]])
    change = script.told("textDocument/didChange")[-1]["contentChanges"]
    assert change == [{"range": edit_of(2, 4, 6, "")["range"], "text": "bb"}]
    emacs.type("C-/")
    until(lambda: line(emacs, 2) == "c = aa")


def test_the_cursor_comes_to_stand_behind_the_last_changed_word(open_emacs: Open, script: Script) -> None:
    parts = [edit_of(0, 5, 5, "\nb = 2"), edit_of(1, 0, 7, "measure")]
    script.answer("", commands=COMMANDS, edit=edit_of(0, 5, 6, "\nb = 2\nmeasur", lines=1) | {"parts": parts})
    emacs = open_emacs("a = 1\ncompute(3)\nc\n")
    emacs.type("Down", "Down")
    emacs.type_text("x")
    until(lambda: emacs.screen().startswith("a = 1\nb = 2\ncomputemeasure(3)\nxc\n"))
    shown = emacs.screen(escapes=True).split("\n")[2]
    codes = {word: str(re.findall(rf"((?:\x1b\[[\d;]*m)+){word}", shown)) for word in ("compute", "measure")}
    assert all("48;2;" in each for each in codes.values())  # both have a ground
    assert re.search(r"\[[49]m", codes["compute"])  # underlined, or struck out
    assert not re.search(r"\[[49]m", codes["measure"])
    emacs.type("Tab")
    until(lambda: cursor(emacs) != "1,3")
    emacs.type("Tab")
    until(lambda: emacs.screen().startswith("a = 1\nb = 2\nmeasure(3)\nxc\n"))
    until(lambda: cursor(emacs) == "7,2")


def run_batch(steps: str) -> str:
    """What Emacs prints that runs the steps without a terminal."""
    command = [EMACS, "-Q", "--batch", "-L", str(MIDFILL_EL), "-l", "midfill", "--eval", steps]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


SHOW = """(let ((edit '(:text "new" :range (:start (:line 1 :character 0) :end (:line 1 :character 3)))))
  (cl-letf (((symbol-function 'pos-visible-in-window-p) #'always))
    (midfill-next-edit--show (append (list :parts (vector edit)) edit))))"""


def test_another_major_mode_leaves_nothing_of_the_edit() -> None:
    """As after `revert-buffer', which calls the mode again."""
    steps = f"""(with-temp-buffer (insert "x\nold = 1")
      (cl-letf (((symbol-function 'midfill--connect) #'always)) (midfill-mode 1))
      {SHOW} (princ (length (overlays-in 1 99))) (text-mode) (princ (length (overlays-in 1 99))))"""
    assert run_batch(steps) == "20"


def test_an_edit_outside_of_the_narrowed_text_is_hidden() -> None:
    steps = f"""(with-temp-buffer (insert "x\nold = 1") (goto-char 1) {SHOW} (narrow-to-region 1 2)
      (midfill-go-to-edit) (widen) (princ (list (buffer-string) (point) midfill-next-edit--shown)))"""
    assert run_batch(steps) == "(x\nold = 1 1 nil)"


def test_an_edit_in_hidden_lines_is_noted_and_the_jump_opens_them() -> None:
    steps = f"""(with-temp-buffer (insert "* x\n* y\nold = 1") (outline-mode) (outline-hide-body) (goto-char 1)
      {SHOW.replace(":line 1", ":line 2")} (princ (length (overlays-in 4 4))) (midfill-go-to-edit)
      (princ (list (point) (invisible-p (point)))))"""
    assert run_batch(steps) == "1(9 nil)"


def test_the_note_of_an_edit_out_of_sight_goes_with_the_jump() -> None:
    steps = """(with-temp-buffer (insert "x\nold = 1") (goto-char 1)
      (let* ((edit '(:text "new" :range (:start (:line 1 :character 0) :end (:line 1 :character 3))))
             (notes (lambda () (seq-filter (lambda (text) (string-search "next edit in line 2" (or text "")))
                                           (mapcar (lambda (each) (overlay-get each 'after-string)) (overlays-in 1 99))))))
        (cl-letf (((symbol-function 'pos-visible-in-window-p) #'ignore))
          (midfill-next-edit--show (append (list :parts (vector edit)) edit)))
        (princ (length (funcall notes)))
        (midfill-go-to-edit)
        (princ (list (length (funcall notes)) (point) (length (overlays-in 1 99))))))"""
    assert run_batch(steps) == "1(0 3 2)"  # what marks the edit itself stays


def test_an_edit_of_a_text_that_a_timer_has_changed_is_not_applied() -> None:
    """No command runs then, after which the edit would be hidden."""
    steps = """(with-temp-buffer (insert "aaa\nold = 1") (goto-char 5)
      (setq midfill-next-edit--shown (list '(:text "new") 5 8 (buffer-chars-modified-tick)))
      (save-excursion (goto-char 1) (insert "ab")) (midfill-go-to-edit)
      (princ (buffer-string)) (princ midfill-next-edit--shown))"""
    assert run_batch(steps) == "abaaa\nold = 1nil"


def test_an_edit_of_lines_is_drawn_below_them_and_refused_by_a_key(open_emacs: Open, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=LINES)
    emacs = open_emacs(TEXT)
    emacs.type("Down", "Down")
    emacs.type_text("x")
    until(lambda: emacs.screen().startswith("a = 110\nb = 220\nbb = 21\nxc = aa\n"))
    script.answer("", commands=COMMANDS)
    emacs.type("C-g")
    until(lambda: told(script, COMMANDS[1]) == [[1]])
    until(lambda: line(emacs, 2) == "xc = aa")


def test_it_is_never_beside_ghost_text_nor_asked_for_while_lines_are_selected(open_emacs: Open, script: Script) -> None:
    script.answer("ghost", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    emacs = open_emacs(TEXT)
    emacs.type_text("x")
    until(lambda: line(emacs, 0).startswith("xghost"))
    assert not soon(lambda: script.told("textDocument/copilotInlineEdit"), 1.0)
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    emacs.type_text("y")
    until(lambda: line(emacs, 2) == "c = aabb")
    script.answer("ghost", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    emacs.type_text("z")
    until(lambda: line(emacs, 0).startswith("xyzghost") and line(emacs, 2) == "c = aa")
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    asked = len(script.told("textDocument/copilotInlineEdit"))
    emacs.type("C-g", "C-Space", "Down", "Down")
    assert not soon(lambda: len(script.told("textDocument/copilotInlineEdit")) > asked, 1.0)
    emacs.type("C-g", "Up")
    assert not soon(lambda: len(script.told("textDocument/copilotInlineEdit")) > asked, 1.0)


def test_of_two_windows_on_a_buffer_the_users_shows_it(open_emacs: Open, script: Script) -> None:
    script.answer("ghost", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    emacs = open_emacs(TEXT)
    emacs.type("C-x", "2")
    emacs.type_text("x")
    until(lambda: "xghost" in emacs.screen())
    assert emacs.screen().count("ghost") == 1
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    emacs.type_text("y")
    until(lambda: line(emacs, 2) == "c = aabb")
    assert emacs.screen().count("aabb") == 1
    emacs.type("C-x", "o")
    until(lambda: line(emacs, 2) == "c = aa" and emacs.screen().count("aabb") == 1)
