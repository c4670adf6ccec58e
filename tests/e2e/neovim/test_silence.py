"""Ten situations in which nothing is suggested, in a terminal with a real core: what the user sees there, and does.

E2E_SCREENSHOTS names a folder for pictures of the screen: `silence-SITUATION.svg` while the user types, and what
`:Midfill` then answers, as `silence-SITUATION-status.svg`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from tests.e2e.conftest import READY_SECONDS
from tests.e2e.neovim.conftest import on_both
from tests.e2e.neovim.driver import Program, environment, init_script, soon
from tests.e2e.neovim.terminal import Terminal, running

TEXT = "def double(x):\n    return 2 * x\n\n\n"
# Shows also that an answer has come, which the plugin's text does not.
STATUS_LINE = """
vim.o.statusline = "%t %m%{get(g:, 'answered', '')}%=%{v:lua.require'midfill'.statusline()}"
vim.api.nvim_set_hl(0, 'Normal', { fg = '#e0e2ea' })
local state = require('midfill.state')
local set_usage = state.set_usage
state.set_usage = function(...)
  set_usage(...)
  vim.g.answered = '(answered)'
  vim.cmd.redrawstatus()
end
"""
SHOW_ALL = "holdBackPercent = 0"
HOLD_BACK = "holdBackPercent = 99"
NOTHING_LISTENS = "core = 'ws://127.0.0.1:9', coreToken = 'secret'"


class User:
    """Someone who types in a terminal, and looks at it."""

    def __init__(self, terminal: Terminal, situation: str) -> None:
        self._terminal, self._situation = terminal, situation

    def sees(self, *words: str) -> None:
        """Wait until all of it is on the screen; words may be in two lines."""
        seen = soon(lambda: all(part in self.screen() for part in words), READY_SECONDS)
        assert seen, f"{words} not in: {self.screen()}"

    def sees_no(self, *words: str) -> None:
        gone = soon(lambda: not any(part in self.screen() for part in words), READY_SECONDS)
        assert gone, f"one of {words} in: {self.screen()}"

    def waits_for_the_core(self) -> None:
        self.sees("midfill")
        self.sees_no("midfill …", "midfill starting", "midfill loading")

    def screen(self) -> str:
        return " ".join(self._terminal.screen().split())

    def types(self, text: str, *keys: str) -> None:
        """Press the keys, by tmux's names, then type the text."""
        if keys:
            self._terminal.type(*keys)
        self._terminal.type_text(text)

    def runs(self, command: str) -> None:
        """Run the command in normal mode."""
        self._terminal.type("Escape")
        self.sees_no("-- INSERT --")
        self._terminal.type_text(f":{command}")
        self._terminal.type("Enter")

    def asks(self, *words: str) -> None:
        """Ask why nothing is suggested: the answer is read as a whole, then put away."""
        self.draws("")
        self.runs("Midfill")
        self.sees(*words)
        self.draws("-status")
        self._terminal.type("Enter")
        self.sees_no("Press ENTER")

    def draws(self, suffix: str) -> None:
        """Write a picture of the screen where a folder for pictures is given."""
        if folder := os.environ.get("E2E_SCREENSHOTS"):
            name = f"silence-{self._situation}{suffix}"
            self._terminal.save_picture(Path(folder, f"{name}.svg"), f"Neovim: {self._situation.replace('-', ' ')}")


Meet = Callable[..., User]


@pytest.fixture
def meet(program: Program, tmux: Path, runtime: Path, tmp_path: Path) -> Iterator[Meet]:
    """Opens a file of a project in a terminal, in a situation with a name; ends with the test."""
    with ExitStack() as stack:

        def opened(situation: str, settings: str, name: str = "demo.py", look: str = STATUS_LINE, **files: str) -> User:
            project = tmp_path / "project"
            (project / ".git").mkdir(parents=True)
            for file, text in {name: TEXT, **files}.items():
                (project / file.replace("dot_", ".")).write_text(text, encoding="utf-8")
            init = tmp_path / "init.lua"
            init.write_text(init_script(f"{{ settings = {{ {settings} }} }}", look), encoding="utf-8")
            command = [str(program.path), "-u", str(init), "-i", "NONE", "-n", str(project / name)]
            terminal: AbstractContextManager[Terminal] = running(tmux, tmp_path, command)
            stack.enter_context(environment(tmp_path, runtime))
            return User(stack.enter_context(terminal), situation)

        yield opened


@pytest.mark.parametrize(
    ("situation", "settings", "files", "typed", "short", "words"),
    [
        (
            "language-off",
            f"{SHOW_ALL}, disabledLanguages = {{ 'python' }}",
            {},
            "a",
            "off for python",
            ["Suggestions are off for python: the setting disabledLanguages has this language."],
        ),
        (
            "ignored",
            SHOW_ALL,
            {"dot_midfillignore": "# drafts\n*.py\n"},
            "a",
            "excluded",
            ["its text enters no prompt: *.py in .midfillignore, line 2.", ":Midfill act: Suggest here all the same."],
        ),
        (
            "ignored-by-git",
            f"{SHOW_ALL}, ignoredFiles = 'off'",
            {"dot_gitignore": "demo.*\n"},
            "a",
            "excluded",
            ["its text enters no prompt: demo.* in .gitignore, line 1.", ":Midfill act: Suggest here all the same."],
        ),
        (
            "core-unreachable",
            NOTHING_LISTENS,
            {},
            "a",
            "core unreachable",
            ["no core answers at ws://127.0.0.1:9/ws: connection refused.", ":Midfill act: Try again now."],
        ),
    ],
)  # fmt: skip
def test_a_rule_a_setting_or_a_core_is_named(
    meet: Meet, situation: str, settings: str, files: dict[str, str], typed: str, short: str, words: list[str]
) -> None:
    user = meet(situation, settings, **files)
    user.sees(f"midfill {short}") if short != "off in comments" else user.sees("midfill")
    user.types(typed, "G", "o")
    user.sees(f"midfill {short}", "-- INSERT --")
    user.asks(f"no suggestion ({short}): ", *words)


def test_a_model_that_does_not_exist_is_reported_at_once_and_on_request(meet: Meet) -> None:
    user = meet("no-model", "model = '/no/such/model'")
    user.sees("midfill: no model '/no/such/model'", "Press ENTER")
    user.types("", "Enter")
    user.types("a", "G", "o")
    user.sees("midfill failed", "-- INSERT --")
    user.asks("The core failed: no model '/no/such/model'", ":Midfill act: Restart the core.")


def test_a_secret_is_suggested_in_once_the_user_has_said_so(meet: Meet) -> None:
    user = meet("secret", SHOW_ALL, name=".env")
    user.types("def triple(", "G", "o")
    user.sees("midfill excluded")
    user.asks(".env in the built-in list of secrets.", ":Midfill act: Suggest here all the same. Only if its name")
    user.runs("Midfill act")
    user.sees("midfill: done: Suggest here all the same")
    user.types("x", "A")
    user.sees("(answered)")


@on_both
def test_what_is_held_back_is_shown_where_the_user_left_off_on_request(meet: Meet) -> None:
    user = meet("held-back", HOLD_BACK)
    user.types("zq = ", "G", "o")
    user.sees("(answered)")
    user.asks("no suggestion (unlikely): A suggestion is not shown", ":Midfill act: Show it.")
    user.runs("Midfill act")
    user.sees("-- INSERT --", "zq = np.")


def test_a_snooze_and_a_switch_say_how_they_end(meet: Meet) -> None:
    user = meet("snoozed", SHOW_ALL)
    user.waits_for_the_core()
    user.runs("Midfill snooze 15")
    user.sees("midfill: suggestions are snoozed; :Midfill act resumes them")
    user.types("def triple(", "G", "o")
    user.sees("midfill snoozed until ")
    user.asks("Suggestions are snoozed until ", ":Midfill act: Resume now.")
    user.runs("Midfill act")
    user.sees("midfill: done: Resume now")
    user.sees_no("midfill snoozed")
    user._situation = "switched-off"
    user.runs("Midfill disable")
    user.types("a", "A")
    user.sees("midfill off")
    user.asks("Suggestions are switched off in this editor.", ":Midfill enable: Switch them on.")
    user.runs("Midfill enable")
    user.sees_no("midfill off")


def test_a_core_that_the_user_has_stopped(meet: Meet) -> None:
    user = meet("stopped", SHOW_ALL)
    user.types("def triple(", "G", "o")
    user.sees("(answered)")
    user.runs("Midfill core stop")
    user.sees("Press ENTER")
    user.types("", "Enter")
    user.types("x", "A")
    user.sees("midfill stopped")
    user.asks("No core is running: Neovim stopped the core", ":Midfill act: Restart the core.")
    user.runs("Midfill act")
    user.sees("midfill: done: Restart the core")
    user.sees_no("midfill stopped")


def test_a_file_without_a_file_type(meet: Meet) -> None:
    user = meet("no-filetype", SHOW_ALL, name="notes")
    user.sees("midfill needs a filetype")
    user.types("a", "G", "o")
    user.asks("no language server in this buffer: it has no 'filetype'", ":setfiletype text")
    user.runs("setfiletype python")
    user.types("def triple(", "G", "o")
    user.sees("(answered)")


def test_without_a_status_line_the_reason_stands_behind_the_cursors_line_and_the_suggestion_follows(
    meet: Meet, runtime: Path, tmp_path: Path
) -> None:
    user = meet("no-status-line", f"{SHOW_ALL}, disabledLanguages = {{ 'plaintext' }}", look="", notes="\n")
    user.sees("demo.py")
    user.types("def triple(", "G", "o")  # before the server and the core have started
    user.sees("def triple(x")
    user.runs("edit notes")
    user.runs("setfiletype text")
    user.types("a", "A")
    user.sees("a midfill off for plaintext: :Midfill status says why")
    user.draws("")
    user.runs("Midfill")
    user.sees("disabledLanguages has this language")
