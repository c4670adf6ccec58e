"""A recorded session typed into Neovim, while next edits are offered, jumped to, accepted, undone and refused."""

from __future__ import annotations

import sys
from itertools import cycle

from midfill.replay.trace import Patch
from tests.e2e.neovim.conftest import OpenNeovim
from tests.e2e.neovim.driver import Neovim
from tests.e2e.neovim.test_next_edits import drawn
from tests.e2e.recorded_session import SERVER, Model, cores, read_session
from tests.e2e.session_user import User

BEFORE = "vim.cmd('filetype plugin indent off') vim.o.autoindent = false vim.o.textwidth = 0"


class Hands:
    """Types in insert mode, and rests there or in normal mode."""

    def __init__(self, neovim: Neovim) -> None:
        self.neovim = neovim
        self.leaves = cycle([True, True, True, False, False, False, False])
        self.cursor: list[int] = []

    def type(self, text: str, patch: Patch) -> None:
        if self.neovim.mode() == "n":
            self.neovim.keys("i")
        line = text.count("\n", 0, patch.position)
        column = len(text[text.rfind("\n", 0, patch.position) + 1 : patch.position].encode())
        typed = patch.inserted.replace("<", "<lt>").replace("\n", "<CR>").replace("\t", "<C-v><Tab>")
        keys = f"<Cmd>call cursor({line + 1}, {column + 1})<CR>" + "<Del>" * patch.deleted + typed
        while keys:  # as much as the buffer of typed keys takes
            keys = keys[self.neovim.api.input(keys) :]

    def rest(self) -> None:
        if next(self.leaves):
            self.neovim.keys("<Esc>")

    def text(self) -> str:
        return self.neovim.text()

    def is_shown(self) -> bool:
        return drawn(self.neovim) != ("", "")

    def go(self) -> None:
        self.cursor = self._place()
        self.neovim.keys("<M-l>")

    def has_gone(self) -> bool:
        return self._place() != self.cursor

    def refuse(self) -> None:
        if self.neovim.mode() == "n":
            self.neovim.lua("require('midfill.next_edit').refuse()")
        else:
            self.neovim.keys("<C-]>")

    def undo(self) -> None:
        self.neovim.keys("u" if self.neovim.mode() == "n" else "<Esc>ui")

    def _place(self) -> list[int]:
        return list(self.neovim.api.current.window.cursor)


def test_the_text_is_what_was_typed_and_accepted(open_neovim: OpenNeovim) -> None:
    session = read_session()
    model = Model(session.texts)
    with cores(model) as (completions, edits):
        settings = f"core = '{completions.url}', coreToken = 'secret', nextEditModel = 'sweep-b:any', statistics = false"
        options = f"{{ cmd = {{ '{sys.executable}', '-c', [[{SERVER}]], 'lsp' }}, settings = {{ {settings}, "
        options += f"nextEditEngine = '{edits.url}' }} }}"
        neovim = open_neovim(session.texts[0] + "\n", name="session.txt", options=options, before=BEFORE)
        neovim.until_ready()
        user = User(session, model, Hands(neovim))
        user.run()
    assert user.done.keys() >= {"kept", "undone"}
