"""Why Emacs suggests nothing: named in the mode line and in full, and what is suggested once that has ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.emacs.test_client import opened, run
from tests.e2e.emacs.test_next_edits import Open, line, open_emacs, script  # noqa: F401 - fixtures
from tests.e2e.neovim.driver import until
from tests.e2e.neovim.script import Script
from tests.e2e.neovim.terminal import Terminal

# F5 has the server send the notification that a file describes.
BEFORE = """
(defun tell ()
  (interactive)
  (jsonrpc-request midfill--connection :test/notify
                   (with-temp-buffer
                     (insert-file-contents "{file}")
                     (json-parse-buffer :object-type 'plist :null-object nil :false-object :json-false))))
(global-set-key [f5] #'tell)
"""
Tell = Callable[..., None]


@pytest.fixture
def emacs(open_emacs: Open, tmp_path: Path) -> Terminal:  # noqa: F811
    return open_emacs("a\nb\n", BEFORE.format(file=tmp_path / "notification.json"))


@pytest.fixture
def tell(emacs: Terminal, script: Script, tmp_path: Path) -> Tell:  # noqa: F811
    """Has the server send a notification of the document."""
    uri = script.told("textDocument/didOpen")[0]["textDocument"]["uri"]

    def send(method: str, **params: Any) -> None:
        before = len(script.told("test/notify"))
        message = {"method": method, "params": {"textDocument": {"uri": uri}} | params}
        (tmp_path / "notification.json").write_text(json.dumps(message))
        emacs.type("F5")
        until(lambda: len(script.told("test/notify")) > before)

    return send


def reason(kind: str, text: str, *, lasts: bool = True) -> dict[str, Any]:
    return {"kind": kind, "text": text, "explanation": f"It is {text}.", "actions": [], "lasts": lasts}


def until_named(emacs: Terminal, words: str) -> None:
    until(lambda: f" midfill{words})" in emacs.screen().replace(" ElDoc", ""))


def test_the_mode_line_names_what_lasts(emacs: Terminal, tell: Tell) -> None:
    tell("midfill/status", state="loading", message="", reason=reason("loading", "loading 40 %"))
    until_named(emacs, ":loading 40 %")
    tell("midfill/status", state="ready", message="", reason=None)
    until_named(emacs, "")
    tell("midfill/reason", reason=reason("excluded", "excluded"))
    until_named(emacs, ":excluded")
    tell("midfill/reason", reason=reason("nothing", "nothing to add", lasts=False))
    until_named(emacs, "")
    tell("midfill/reason", reason=reason("unloaded", "model unloaded", lasts=False))
    until_named(emacs, ":model unloaded")


def test_a_reason_that_withdraws_a_suggestion_removes_it(emacs: Terminal, script: Script, tell: Tell) -> None:  # noqa: F811
    script.answer("ghost")
    emacs.type_text("x")
    until(lambda: line(emacs, 0) == "xghosta")
    tell("midfill/reason", reason=reason("excluded", "excluded"))
    until(lambda: line(emacs, 0) == "xa")


def test_what_kept_an_answer_away_has_ended_and_the_suggestion_comes(
    emacs: Terminal,
    script: Script,  # noqa: F811
    tell: Tell,
) -> None:
    script.answer()
    emacs.type_text("x")
    until(lambda: script.told("textDocument/inlineCompletion"))
    script.answer("one", "two")
    tell("midfill/refresh", invoked=False)
    until(lambda: line(emacs, 0) == "xonea")
    tell("midfill/refresh", invoked=True)
    until(lambda: len(script.told("textDocument/inlineCompletion")) == 3)
    kinds = [each["context"]["triggerKind"] for each in script.told("textDocument/inlineCompletion")]
    assert kinds == [2, 2, 1]
    tell("midfill/refresh", textDocument={"uri": "file:///other.py"}, invoked=True)
    emacs.type("C-x", "b", "n", "Enter")  # where nobody looks, nothing is asked
    until(lambda: "Fundamental" in emacs.screen())
    tell("midfill/refresh", invoked=True)
    emacs.type("C-x", "b", "Enter", "y")
    until(lambda: len(script.told("textDocument/inlineCompletion")) > 3)
    assert len(script.told("textDocument/inlineCompletion")) == 4


def test_a_message_of_the_server_is_shown_once_and_as_it_is(script: Script, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "demo.py").write_text("")
    said = "midfill: no model '/no %s'"
    failed = reason("failed", "failed")
    messages = [
        ("midfill/status", {"state": "failed", "message": "no model '/no %s'", "reason": failed}),
        ("window/showMessage", {"type": 1, "message": said}),
    ]
    lisp = opened(tmp_path / "demo.py")
    lisp += """(let (said)
      (advice-add 'message :before (lambda (&rest all) (when (car all) (push (apply #'format all) said))))"""
    for method, params in messages:
        sent = json.dumps(json.dumps({"method": method, "params": params}))
        parsed = f"(json-parse-string {sent} :object-type 'plist :null-object nil :false-object :json-false)"
        lisp += f"(jsonrpc-request midfill--connection :test/notify {parsed})"
    lisp += "(vconcat said))"
    assert [text for text in run(script, tmp_path, lisp) if "midfill" in text] == [said]


def test_a_command_says_the_reason_in_full(script: Script, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "demo.py").write_text("")
    script.answer(reason={"explanation": "This file gets no suggestions: demo.py in .midfillignore, line 1."})
    lisp = """(let (said)
      (advice-add 'message :before (lambda (&rest all) (when (car all) (push (apply #'format all) said))))
      (find-file "demo.py")
      (push (condition-case failure (midfill-explain) (user-error (error-message-string failure))) said)
      (wait-for (lambda () midfill--open))
      (midfill-explain)
      (wait-for (lambda () (cl-find "midfillignore" said :test #'string-match-p)))
      (vconcat (reverse said)))"""
    told = [text for text in run(script, tmp_path, lisp) if "midfill:" in text]
    assert told == [
        "midfill: The language server is starting.",
        "midfill: This file gets no suggestions: demo.py in .midfillignore, line 1.",
    ]


def executed(script: Script) -> list[Any]:  # noqa: F811
    return [(each["command"], each["arguments"]) for each in script.told("workspace/executeCommand")]


@pytest.mark.parametrize("problem", ["", "a.py may hold a secret"])
def test_a_command_offers_what_helps(emacs: Terminal, script: Script, problem: str) -> None:  # noqa: F811
    here = {
        "title": "Suggest here all the same",
        "command": "midfill.suggestHere",
        "arguments": ["file:///a"],
        "detail": "Only if.",
    }
    actions = [here, {"title": "Restart the core", "command": "midfill.restartCore", "arguments": []}]
    script.answer(reason=reason("excluded", "excluded") | {"actions": actions}, **({"problem": problem} if problem else {}))
    for typed in ("", "Sug"):  # an empty answer chooses nothing
        emacs.type("M-x")
        emacs.type_text("midfill-explain")
        emacs.type("Enter")
        until(lambda: "midfill: It is excluded.\nOnly if.\nDo (Tab lists):" in emacs.screen())
        assert executed(script) == []
        if typed:
            emacs.type_text(typed)
            emacs.type("Tab")
        emacs.type("Enter")
        until(lambda: "Do (Tab lists):" not in emacs.screen())
    until(lambda: f"midfill: {problem or 'done: Suggest here all the same'}" in emacs.screen())
    assert executed(script) == [("midfill.suggestHere", ["file:///a"])]


def test_a_command_snoozes(emacs: Terminal, script: Script) -> None:  # noqa: F811
    emacs.type("M-5", "M-x")
    emacs.type_text("midfill-snooze")
    emacs.type("Enter")
    until(lambda: "suggestions are snoozed" in emacs.screen())
    assert executed(script) == [("midfill.snooze", [5])]
