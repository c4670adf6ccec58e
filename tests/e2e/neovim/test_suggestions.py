"""Typing in a real Neovim, with the real language server, core and model: what is shown, and what gets to the disk."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import psutil

from lsp_server.usage.statistics import Statistics, read_statistics, total
from tests.e2e.conftest import READY_SECONDS, core_pids
from tests.e2e.neovim.conftest import OpenNeovim
from tests.e2e.neovim.driver import Neovim, until

# Where so much repeats, any model has something to say somewhere in the next line.
CODE = """\
import os
import sys


class Point:
    def __init__(self, x, y, name):
        self.x = x
        self.y = y
        self.name = name

    def show(self):
        print(self.x)
        print(self.y)
        print(self.name)


class Circle:
    def __init__(self, x, y, name):
        self.x = x
        self.y = y
        self.name = name

    def show(self):
"""
LINE = "        print(self.x)"

# How long nothing must happen for it to count as nothing: Neovim waits 0.2 s before it asks.
A_WHILE = 1.0


def type_until_ghost(neovim: Neovim, line: str = LINE) -> str:
    """Type a new last line until a suggestion is shown: its text."""
    neovim.keys("Go<C-u>")
    until(lambda: neovim.mode() == "i")
    typed = neovim.text()
    for character in line[:-1]:
        neovim.keys(character)
        typed += character
        until(lambda expected=typed: neovim.text() == expected and neovim.answered())  # type: ignore[misc]
        if offer := neovim.offer():
            until(neovim.ghost)
            return offer
    raise AssertionError(f"no suggestion while typing {line!r}")


def check_mirror(neovim: Neovim) -> None:
    """The server's mirror is what the buffer holds."""
    ending = "\r\n" if neovim.api.current.buffer.options["fileformat"] == "dos" else "\n"
    text = "".join(line.replace("\r", " ") + ending for line in neovim.api.current.buffer[:])
    expected = hashlib.sha256(text.encode()).hexdigest()
    request = (
        "local params = { textDocument = vim.lsp.util.make_text_document_params(0) }"
        "local answers = vim.lsp.buf_request_sync(0, 'midfill/documentHash', params, 5000)"
        "local _, answer = next(answers or {})"
        "return answer and answer.result and answer.result.sha256"
    )
    until(lambda: neovim.lua(request) == expected, 5.0)


def test_a_suggestion_is_shown_and_accepted(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    assert neovim.ghost() == offer
    before = neovim.text()
    neovim.keys("<M-l>")
    until(lambda: neovim.text() == before + offer)
    assert neovim.ghost() != offer
    neovim.keys("<Esc>")
    assert neovim.write() == f"{before}{offer}\n".encode()
    assert neovim.ghost() == ""
    check_mirror(neovim)


def test_what_is_typed_as_suggested_shortens_the_suggestion(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    while len(offer) > 1 and offer[0] not in "\n<":
        neovim.keys(offer[0])
        offer = offer[1:]
        until(lambda expected=offer: neovim.offer() == neovim.ghost() == expected)  # type: ignore[misc]
    before = neovim.text()
    neovim.keys("<M-l>")
    until(lambda: neovim.text() == before + offer)
    check_mirror(neovim)


def test_another_character_takes_the_suggestion_away_at_once(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    neovim.keys("~" if offer[0] != "~" else "^")
    # Asked in the same breath: what is shown must fit, whether or not there is an answer yet.
    assert not (neovim.text().endswith("~") and neovim.ghost() == offer)
    until(lambda: neovim.ghost() in ("", neovim.offer()))
    before = neovim.text()
    current = neovim.offer()
    assert neovim.lua("return require('midfill').accept()") == bool(current)
    until(lambda: neovim.text() == before + current)


def test_words_are_accepted_one_by_one(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    before = neovim.text()
    neovim.keys("<M-Right>")
    until(lambda: neovim.text() != before)
    word = neovim.text().removeprefix(before)
    assert offer.startswith(word)
    rest = offer.removeprefix(word)
    if rest:
        until(lambda: neovim.ghost() == neovim.offer() == rest)
    check_mirror(neovim)


def test_a_line_is_accepted_alone(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    before = neovim.text()
    neovim.keys("<M-C-Right>")
    until(lambda: neovim.text() == before + offer.lstrip("\n").split("\n")[0])
    check_mirror(neovim)


def test_alternatives_are_gone_through(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    before = neovim.text()
    neovim.keys("<M-]>")
    until(lambda: neovim.offer() not in ("", offer))
    other = neovim.offer()
    until(lambda: neovim.ghost().startswith(other))  # how many there are may stand behind it
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.text() == before + other)
    check_mirror(neovim)


def test_with_the_popup_open_its_keys_stay_its_own(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE, before="vim.o.completeopt = 'menu,menuone'")
    neovim.until_ready()
    neovim.keys("Go<C-u>        print(self.na<C-n>")
    until(lambda: neovim.lua("return vim.fn.pumvisible()"))
    until(neovim.answered)
    until(lambda: neovim.ghost() == neovim.offer())
    selected = neovim.text()
    assert selected.endswith("print(self.name")
    neovim.keys("<C-y>")
    until(lambda: not neovim.lua("return vim.fn.pumvisible()"))
    assert neovim.text() == selected
    until(neovim.answered)
    until(lambda: neovim.ghost() == neovim.offer())
    neovim.keys("<Esc>")
    assert neovim.write() == f"{selected}\n".encode()
    check_mirror(neovim)


def test_a_dismissed_suggestion_stays_away_until_the_next_key(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    before = neovim.text()
    neovim.keys("<C-]>")
    until(lambda: neovim.ghost() == "")
    time.sleep(A_WHILE)
    assert (neovim.ghost(), neovim.offer()) == ("", "")
    neovim.keys("<M-l>")  # nothing to accept
    neovim.keys(offer[0] if offer[0] != "<" else "<lt>")
    until(lambda: neovim.text() == before + offer[0])
    assert neovim.mode() == "i"


def test_leaving_insert_mode_takes_the_suggestion_away(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    type_until_ghost(neovim)
    neovim.keys("<Esc>")
    until(lambda: neovim.mode() == "n")
    time.sleep(A_WHILE)
    assert (neovim.ghost(), neovim.offer()) == ("", "")


def test_blocks_are_shown_and_accepted_as_they_are(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE + CODE.replace("Circle", "Square"))
    neovim.until_ready()
    neovim.keys("Go<C-u>class Other:<CR>def __init__(self, x, y, name):<CR>")
    until(lambda: neovim.text().endswith("        ") or neovim.text().endswith("name):\n"))
    offer = type_until_ghost(neovim, "        self.x = x")
    assert neovim.ghost() == offer
    before = neovim.text()
    neovim.keys("<M-l>")
    until(lambda: neovim.text() == before + offer)
    neovim.keys("<Esc>")
    assert neovim.write() == f"{before}{offer}\n".encode()
    check_mirror(neovim)


def test_carriage_returns_stay_where_they_were(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE.replace("\n", "\r\n"))
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    assert "\r" not in neovim.ghost()
    before = neovim.text()
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.text() == before + offer)
    assert neovim.write() == f"{before}{offer}\n".replace("\n", "\r\n").encode()
    check_mirror(neovim)


def test_a_carriage_return_within_a_line_moves_no_other_line(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(f"# a\r# b\n# c\r\n{CODE}")
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    before = neovim.text()
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.text() == before + offer)
    neovim.keys("ggA!\r!<Esc>j$i?<Esc>")
    until(lambda: neovim.text().startswith("# a\r# b!\n!"))
    check_mirror(neovim)


def test_suggests_behind_an_emoji(open_neovim: OpenNeovim) -> None:
    emoji = 'smile = "😋é"; '
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim, f"{emoji}print(smile)")
    before = neovim.text()
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.text() == before + offer)
    neovim.keys(f"o{emoji}")
    until(lambda: neovim.text().endswith(emoji))
    offer = type_until_ghost(neovim, f"{emoji}print(smile)")
    check_mirror(neovim)


def test_nothing_is_suggested_in_a_language_that_is_off(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE, options="{ settings = { disabledLanguages = { 'python' } } }")
    neovim.until_ready()
    neovim.keys("Go        print(self")
    until(lambda: neovim.text().endswith("self"))
    time.sleep(A_WHILE)
    assert (neovim.ghost(), neovim.offer(), neovim.usage()) == ("", "", {})
    neovim.lua("require('midfill').configure({ disabledLanguages = {} })")
    neovim.keys("<Esc>u")
    type_until_ghost(neovim)


def test_switched_off_and_on(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    type_until_ghost(neovim)
    neovim.keys("<Esc>:Midfill disable<CR>u")
    neovim.keys("Go        print(self")
    until(lambda: neovim.text().endswith("print(self"))
    time.sleep(A_WHILE)
    assert (neovim.ghost(), neovim.offer()) == ("", "")
    assert neovim.lua("return require('midfill').statusline()") == "midfill off"
    neovim.keys("<Esc>u:Midfill enable<CR>")
    type_until_ghost(neovim)


def test_a_killed_language_server_comes_back(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    type_until_ghost(neovim)
    client = neovim.lua("return require('midfill.client').of(0).id")
    for process in language_servers(neovim):
        process.kill()
    until(lambda: neovim.lua("local c = require('midfill.client').of(0); return c and c.id") not in (None, client))
    neovim.until_ready()
    neovim.keys("<Esc>u")
    type_until_ghost(neovim)
    check_mirror(neovim)


def language_servers(neovim: Neovim) -> list[psutil.Process]:
    editor = psutil.Process(neovim.lua("return vim.fn.getpid()"))
    return [child for child in editor.children(recursive=True) if "lsp" in child.cmdline()]


def test_a_killed_core_comes_back(open_neovim: OpenNeovim, runtime: Path) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    type_until_ghost(neovim)
    (core,) = core_pids(runtime)
    psutil.Process(core).kill()
    until(lambda: neovim.status().get("state") != "ready")
    neovim.until_ready()
    assert core_pids(runtime) != [core]
    neovim.keys("<Esc>u")
    type_until_ghost(neovim)
    check_mirror(neovim)


def test_windows_share_one_core(open_neovim: OpenNeovim, runtime: Path) -> None:
    one, other = open_neovim(CODE, "one.py"), open_neovim(CODE, "other.py")
    one.until_ready()
    other.until_ready()
    type_until_ghost(one)
    type_until_ghost(other)
    assert len(core_pids(runtime)) == 1


def test_words_and_the_rest_are_counted_once(open_neovim: OpenNeovim, tmp_path: Path) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    before = neovim.text()
    neovim.keys("<M-Right>")
    until(lambda: neovim.text() != before)
    is_whole = neovim.text() == before + offer
    if not is_whole:
        neovim.until_ghost()
        neovim.keys("<M-l>")
        until(lambda: neovim.text().startswith(before + offer))
    accepted = len(neovim.text()) - len(before)
    neovim.keys("<Esc>ddu")  # the cursor's line goes and returns: nothing new is typed or accepted
    (state,) = tmp_path.glob("home-*/state")

    def counted() -> Statistics:
        return total(read_statistics(state / "midfill" / "statistics.sqlite").values())

    until(lambda: counted().accepted_characters)
    assert counted().accepted_characters == accepted
    assert (counted().accepted, counted().accepted_partly) == ((1, 0) if is_whole else (0, 1))
    assert counted().shown <= len(LINE)
    neovim.keys("A#<Esc>")
    until(lambda: counted().typed_characters)
    assert counted().typed_characters <= len(LINE) + 2  # and the line end of `o`; what comes in one change is a paste
    neovim.api.command("Midfill stats")
    until(lambda: "midfill on this machine" in neovim.text())
    assert "python" in neovim.text()
    neovim.api.command("Midfill stats")  # in place of the former
    until(lambda: neovim.lua("return vim.fn.winnr('$')") == 2 and "python" in neovim.text())


def test_tells_its_state_and_on_request_the_cost(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    type_until_ghost(neovim)
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.mode() == "n")
    assert neovim.lua("return require('midfill').statusline()") == "midfill"
    status = neovim.api.command_output("Midfill status")
    assert "midfill: ready\nmodel: tiny on cpu\nlast prompt: " in status
    neovim.api.command("checkhealth midfill")
    health = "\n".join(neovim.api.current.buffer[:])
    assert "ERROR" not in health
    assert "ready tiny cpu" in health


def test_restarts_when_told(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    (before,) = language_servers(neovim)
    neovim.api.command("Midfill restart")
    until(lambda: not before.is_running() and language_servers(neovim), READY_SECONDS)
    neovim.until_ready()
    type_until_ghost(neovim)
