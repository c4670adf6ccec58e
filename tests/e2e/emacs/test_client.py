"""midfill.el in a real Emacs without a terminal, with a scripted language server: what it sends, keeps and tells."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.emacs.conftest import EMACS
from tests.e2e.emacs.test_ghost_text import MIDFILL_EL
from tests.e2e.neovim.script import Script

INIT = """
(set-language-environment "UTF-8")
(setq create-lockfiles nil make-backup-files nil coding-system-for-read 'utf-8-unix)
(require 'midfill)
(setq midfill-command '({command}))
(add-hook 'prog-mode-hook #'midfill-mode)
(defun wait-for (done)
  (let ((patience 3000))
    (while (not (funcall done))
      (when (< (setq patience (1- patience)) 0) (error "Waited in vain"))
      (accept-process-output nil 0.02))))
(defun type (text)
  (dolist (character (string-to-list text)) (insert character) (midfill--after-command)))
"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def run(script: Script, tmp_path: Path, lisp: str, command: str | None = None) -> Any:
    """What the Lisp returns in an Emacs with midfill."""
    words = " ".join(json.dumps(word) for word in script.command) if command is None else f'"{command}"'
    (tmp_path / "init.el").write_text(INIT.format(command=words), encoding="utf-8")
    given = f'(princ (concat "\\nresult:" (json-serialize (progn {lisp}))))'
    argv = [EMACS, "-Q", "--batch", "-L", str(MIDFILL_EL), "-l", str(tmp_path / "init.el"), "--eval", given]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("result:")[2])


def opened(file: Path) -> str:
    return f'(find-file "{file}") (wait-for (lambda () midfill--open)) '


def test_what_is_sent_is_kept_nowhere(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "demo.py"
    file.write_text("password = 1\n")
    lisp = """(setq midfill-settings '(:coreToken "sesame"))""" + opened(file)
    lisp += """(type "x = ") (wait-for (lambda () (not (equal midfill--version 0))))
      (vconcat (mapcar (lambda (buffer) (with-current-buffer buffer (buffer-substring-no-properties 1 (point-max))))
                       (remq (current-buffer) (buffer-list))))"""
    kept = run(script, tmp_path, lisp)
    assert script.told("initialize")[0]["initializationOptions"] == {"coreToken": "sesame"}
    assert "password" in script.told("textDocument/didOpen")[0]["textDocument"]["text"]
    assert [text for text in kept if "sesame" in text or "password" in text] == []


def test_a_missing_command_is_reported_once_and_other_hooks_run(script: Script, tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("a\n")
    lisp = """
      (defvar ran nil)
      (add-hook 'prog-mode-hook (lambda () (push (buffer-name) ran)) 90)
      (add-hook 'python-mode-hook (lambda () (push major-mode ran)))
      (find-file "one.py") (find-file "two.py")
      (vector (vconcat (mapcar (lambda (each) (format "%s" each)) (reverse ran))) (if midfill-mode t :false)
              (with-current-buffer "*Warnings*" (buffer-string)))"""
    ran, on, warnings = run(script, tmp_path, lisp, command="no-such-midfill")
    assert ran == ["one.py", "python-mode", "two.py", "python-mode"]
    assert on is False
    assert warnings.count("is not executable: set midfill-command") == 1


def test_suggestions_on_request_alone(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "demo.py"
    file.write_text("")
    script.answer("abc def")
    lisp = "(setq midfill-automatic nil)" + opened(file)
    lisp += """(type "x")
      (midfill-suggest) (wait-for (lambda () midfill--item))
      (type "ab") ; as suggested: the rest stays
      (midfill-accept-word) (midfill-accept)
      (buffer-string)"""
    assert run(script, tmp_path, lisp) == "xabc def"
    (asked,) = script.told("textDocument/inlineCompletion")
    assert asked["context"]["triggerKind"] == 1


def test_a_request_that_gets_nothing_is_answered_with_the_reason(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "demo.py"
    file.write_text("")
    script.answer(reason={"explanation": "The model predicts that nothing is to be added here."})
    lisp = opened(file)
    lisp += """(let (said)
        (advice-add 'message :before (lambda (&rest all) (when (car all) (push (apply #'format all) said))))
        (midfill-suggest) (wait-for (lambda () (cl-find "^midfill:" said :test #'string-match-p)))
        (vconcat said))"""
    assert "midfill: The model predicts that nothing is to be added here." in run(script, tmp_path, lisp)


def test_a_request_without_a_server_says_what_helps(script: Script, tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text("a\n")
    lisp = opened(tmp_path / "demo.py") + "(jsonrpc-shutdown midfill--connection)"
    lisp += "(condition-case failure (midfill-suggest) (user-error (error-message-string failure)))"
    assert "M-x midfill-restart" in run(script, tmp_path, lisp)


def test_carriage_returns_and_bytes_that_are_no_text_move_nothing(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "demo.py"
    file.write_bytes(b"# a\r# \xff\xfe b\nc\n")
    script.answer("abc")
    lisp = opened(file)
    lisp += r"""(goto-char (point-max)) (insert "\r\377!") (type "x") (wait-for (lambda () midfill--item)) t"""
    assert run(script, tmp_path, lisp)
    assert script.told("textDocument/didOpen")[0]["textDocument"]["text"] == "# a # \ufffd\ufffd b\nc\n"
    first, _ = (change["contentChanges"] for change in script.told("textDocument/didChange"))
    assert first[0]["text"] == " \ufffd!"
    assert script.told("textDocument/inlineCompletion")[-1]["position"] == {"line": 2, "character": 4}


def text_at_server(script: Script) -> str:
    """The document's text, as the server has it by what it was told."""
    text: str = script.told("textDocument/didOpen")[0]["textDocument"]["text"]

    def place(position: dict[str, int]) -> int:
        return sum(map(len, text.splitlines(keepends=True)[: position["line"]])) + position["character"]

    for change in (each for told in script.told("textDocument/didChange") for each in told["contentChanges"]):
        span = change.get("range")
        text = text[: place(span["start"])] + change["text"] + text[place(span["end"]) :] if span else change["text"]
    return text


@pytest.mark.parametrize(
    "edit",
    [
        "(decode-coding-region 5 9 'utf-8)",
        '(let ((inhibit-modification-hooks t)) (insert "x"))',
        "(let ((inhibit-modification-hooks t)) (upcase-region (point-min) (point-max)))",
        '(let ((inhibit-modification-hooks t)) (upcase-region (point-min) (point-max))) (insert "x")',
        '(add-hook \'after-change-functions (lambda (&rest _) (goto-char 1) (insert "y")) nil t) (insert "x")',
        "(sort-lines nil (point-min) (point-max))",
        "(upcase-region (point-min) (point-max))",
        "(subst-char-in-region (point-min) (point-max) ?a ?b)",
        "(narrow-to-region 5 8) (erase-buffer)",
    ],
)
def test_the_server_follows_every_edit_announced_or_not(script: Script, tmp_path: Path, edit: str) -> None:
    (tmp_path / "demo.py").write_text("c = ä\nb = 2\na = 😋\n")
    lisp = (
        opened(tmp_path / "demo.py")
        + edit
        + """
      (midfill--after-command)
      (jsonrpc-request midfill--connection :midfill/lastReason nil)
      (vector (save-restriction (widen) (buffer-string)))"""
    )
    assert run(script, tmp_path, lisp) == [text_at_server(script)]


def test_a_restart_replaces_the_core_and_the_language_server(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "demo.py"
    file.write_text("")
    script.answer("abc")
    lisp = "(midfill-restart) (wait-for (lambda () midfill--open))"
    run(script, tmp_path, f"{opened(file)} {lisp} (midfill-suggest) (wait-for (lambda () midfill--item)) t")
    assert [command["command"] for command in script.told("workspace/executeCommand")] == ["midfill.restartCore"]
    assert len(script.told("initialize")) == len(script.told("textDocument/didOpen")) == 2


def test_the_server_hears_of_languages_by_their_ids(script: Script, tmp_path: Path) -> None:
    files = {"Makefile": "makefile", "a.html": "html", "a.cpp": "cpp", "a.sh": "shellscript", "a.rb": "ruby"}
    for name in files:
        (tmp_path / name).write_text("")
    lisp = "".join(f'(find-file "{name}") (midfill-mode 1) (wait-for (lambda () midfill--open))' for name in files)
    script.answer("abc")
    run(script, tmp_path, f"{lisp} (midfill-suggest) (wait-for (lambda () midfill--item)) t")
    opened = [each["textDocument"] for each in script.told("textDocument/didOpen")]
    assert {Path(each["uri"]).name: each["languageId"] for each in opened} == files


def test_a_server_that_has_just_died_breaks_no_hook(script: Script, tmp_path: Path) -> None:
    """Emacs removes what fails from its hooks; it hears of the death when it waits for input."""
    file = tmp_path / "demo.py"
    file.write_text("")
    lisp = (
        opened(file)
        + """(let ((server (jsonrpc--process midfill--connection)))
      (signal-process server 'KILL)
      (while (process-live-p server)) ; without waiting for input
      (type "x") t)"""
    )
    assert run(script, tmp_path, lisp)


def test_a_renamed_buffer_without_a_file_is_opened_again_by_its_old_name(script: Script, tmp_path: Path) -> None:
    lisp = """(python-mode) (wait-for (lambda () midfill--open)) (rename-buffer "other")
      (jsonrpc-request midfill--connection :test/notify
                       (list :jsonrpc "2.0" :method "midfill/resync" :params (list :textDocument (list :uri midfill--open))))
      (wait-for (lambda () (string-search "other" midfill--open))) t"""
    assert run(script, tmp_path, lisp)


def test_a_macro_and_further_cursors_get_no_suggestions_of_themselves(script: Script, tmp_path: Path) -> None:
    """None would be there where the keys are repeated."""
    file = tmp_path / "demo.py"
    file.write_text("")
    lisp = (
        opened(file)
        + """(execute-kbd-macro "ab")
      (let ((defining-kbd-macro t)) (type "c"))
      (defvar multiple-cursors-mode t) (type "d") (setq multiple-cursors-mode nil)
      (type "e") (wait-for (lambda () (= midfill--version 5))) (midfill-suggest) (wait-for (lambda () midfill--item)) t"""
    )
    script.answer("abc")
    assert run(script, tmp_path, lisp)
    places = [asked["position"]["character"] for asked in script.told("textDocument/inlineCompletion")]
    assert places == [5, 5]
