"""Ghost text beside evil, Emacs' vi, with a scripted language server; left out where Debian's elpa-evil is not installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.emacs.test_next_edits import Open, line, open_emacs, script  # noqa: F401 - fixtures
from tests.e2e.neovim.driver import until
from tests.e2e.neovim.script import Script

PACKAGES = [*Path(os.environ.get("TEST_EVIL", "/usr/share/emacs/site-lisp/elpa-src")).glob("*")]
EVIL = "".join(f'(add-to-list \'load-path "{each}")' for each in PACKAGES) + "(require 'evil) (evil-mode 1)"


@pytest.mark.skipif(not any(each.name.startswith("evil-") for each in PACKAGES), reason="needs elpa-evil")
def test_it_suggests_while_inserting_and_the_dot_repeats_what_was_accepted(
    open_emacs: Open,  # noqa: F811
    script: Script,  # noqa: F811
) -> None:
    script.answer("ghost")
    emacs = open_emacs("a = 1\nb = 2\n", EVIL)
    emacs.type_text("x")
    until(lambda: line(emacs, 0) == " = 1")
    emacs.type_text("iq")
    until(lambda: line(emacs, 0) == "qghost = 1")
    assert len(script.told("textDocument/inlineCompletion")) == 1
    script.answer("")
    emacs.type("Tab", "Escape")
    until(lambda: "<N>" in emacs.screen())  # Escape and a key at once are one with Meta
    emacs.type_text("j0.")
    until(lambda: line(emacs, 1) == "qghostb = 2")
