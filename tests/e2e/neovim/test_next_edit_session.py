"""A recorded session typed into Neovim, while next edits are offered, jumped to, accepted and refused at random.

The model offers what the session does next, or deletes lines. `TEST_TRACE` names a longer session, with times: of
that, the first half hour is typed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path

from midfill.replay.trace import Patch, Trace, read_trace
from protocol.messages import CompletionRequest
from tests.e2e.neovim.conftest import OpenNeovim
from tests.e2e.neovim.driver import Neovim, soon, until
from tests.e2e.neovim.test_next_edits import drawn
from tests.lsp_server.fake_core import FakeCore, says

TRACE = Path(os.environ.get("TEST_TRACE", Path(__file__).parents[2] / "data" / "rustcode-3000-3400.json.gz"))
SECONDS, PAUSE_S, LONGEST_PAUSE_S = 1800.0, 3.0, 30.0  # no pause counts as longer
KEYS_BETWEEN_PAUSES = 8  # of a session without times
AHEAD = 12  # transactions that the model predicts at most
# What is refused is not held against the model for long.
SERVER = """
import lsp_server.next_edit.gate as gate
gate.FIRST_BACK_OFF_S = gate.LONGEST_BACK_OFF_S = 0.05
from midfill.__main__ import main
main()
"""
log = logging.getLogger(__name__)
BEFORE = "vim.cmd('filetype plugin indent off') vim.o.autoindent = false vim.o.textwidth = 0"


def apply(text: str, patches: tuple[Patch, ...]) -> str:
    for position, deleted, inserted in patches:
        text = text[:position] + inserted + text[position + deleted :]
    return text


def first_half_hour(trace: Trace) -> tuple[list[tuple[Patch, ...]], list[bool]]:
    """The transactions, and whether the user rests behind each."""
    times = trace.times
    if not times:
        count = len(trace.transactions)
        return list(trace.transactions), [number % KEYS_BETWEEN_PAUSES == 0 for number in range(count)]
    pauses = [later - time for time, later in pairwise(times)]
    count = sum(total < SECONDS for total in accumulate(min(pause, LONGEST_PAUSE_S) for pause in pauses))
    return list(trace.transactions[:count]), [pause >= PAUSE_S for pause in pauses]


class Model:
    """Predicts the states that the session comes to, and now and then deletes lines."""

    def __init__(self, texts: list[str], chance: random.Random) -> None:
        self.texts, self.now, self.chance = texts, 0, chance

    async def answer(self, request: CompletionRequest) -> str:
        region, text = request.copies, self.texts[self.now] + "\n"  # Neovim ends the last line
        begin = text.find(region)
        if begin < 0:
            return region
        if self.chance.random() < 0.3:
            lines = region.splitlines(keepends=True)
            at = self.chance.randrange(len(lines))
            return "".join(lines[:at] + lines[at + 2 :])
        above, below = text[:begin], text[begin + len(region) :]
        for state in (state + "\n" for state in self.texts[self.now + AHEAD : self.now : -1]):
            if len(state) >= len(above) + len(below) and state.startswith(above) and state.endswith(below):
                return state[len(above) : len(state) - len(below)]
        return region


@contextmanager
def serving(core: FakeCore) -> Iterator[None]:
    """Serve in a thread of its own."""
    started, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with core.listening():
            started.set()
            await ended.wait()

    loop: asyncio.AbstractEventLoop | None = None
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield
    finally:
        assert loop is not None
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def keys_of(text: str, patch: Patch) -> str:
    """The keys that make this change in insert mode, wherever the cursor is."""
    line = text.count("\n", 0, patch.position)
    column = len(text[text.rfind("\n", 0, patch.position) + 1 : patch.position].encode())
    typed = patch.inserted.replace("<", "<lt>").replace("\n", "<CR>").replace("\t", "<C-v><Tab>")
    return f"<Cmd>call cursor({line + 1}, {column + 1})<CR>" + "<Del>" * patch.deleted + typed


class User:
    """Types the session, and decides about each edit that is shown."""

    def __init__(self, neovim: Neovim, model: Model, chance: random.Random) -> None:
        self.neovim, self.model, self.chance = neovim, model, chance
        self.done: Counter[str] = Counter()

    @property
    def text(self) -> str:
        return self.model.texts[self.model.now]

    def type(self, patches: tuple[Patch, ...]) -> None:
        text = self.text
        for patch in patches:
            keys = keys_of(text, patch)
            while keys:  # as much as the buffer of typed keys takes
                keys = keys[self.neovim.api.input(keys) :]
            text = apply(text, (patch,))
        self.model.now += 1

    def rest(self) -> None:
        self.check()
        normal = self.chance.random() < 0.5
        if normal:
            self.neovim.keys("<Esc>")
        if soon(lambda: drawn(self.neovim) != ("", ""), 0.7):
            self.decide(self.chance.choice(["accept", "accept", "refuse", "jump", "ignore"]))
        if normal:
            self.neovim.keys("i")
        self.check()

    def check(self) -> None:
        until(lambda: self.neovim.text() == self.text, 20.0)

    def decide(self, choice: str) -> None:
        if choice == "refuse" and self.neovim.mode() == "n":
            self.neovim.lua("require('midfill.next_edit').refuse()")
        elif choice == "refuse":
            self.neovim.keys("<C-]>")
        for _ in range({"accept": 2, "jump": 1}.get(choice, 0)):  # in the edit's lines, the first key applies it
            self.neovim.keys("<M-l>")
            if soon(lambda: self.neovim.text() != self.text, 0.3):
                choice = self.keep_or_undo()
                break
        self.done[choice] += 1

    def keep_or_undo(self) -> str:
        """Keep what the session does next, and undo a deletion."""
        found = self.neovim.text()
        ahead = self.model.texts[self.model.now : self.model.now + AHEAD + 1]
        if found in ahead:
            self.model.now += ahead.index(found)
            return "kept"
        self.neovim.keys("<Esc>u" if self.neovim.mode() == "n" else "<Esc>ui")
        return "undone"


def test_the_text_is_what_was_typed_and_accepted(open_neovim: OpenNeovim) -> None:
    trace = read_trace(TRACE)
    transactions, rests = first_half_hour(trace)
    texts = list(accumulate(transactions, apply, initial=trace.start))
    chance = random.Random(1)
    model, completions, edits = Model(texts, chance), FakeCore(), FakeCore()
    completions.answer, edits.answer = says(""), model.answer
    with serving(completions), serving(edits):
        settings = f"core = '{completions.url}', coreToken = 'secret', nextEditModel = 'sweep-b:any', statistics = false"
        options = f"{{ cmd = {{ '{sys.executable}', '-c', [[{SERVER}]], 'lsp' }}, settings = {{ {settings}, "
        options += f"nextEditEngine = '{edits.url}' }} }}"
        neovim = open_neovim(texts[0] + "\n", name="session.txt", options=options, before=BEFORE)
        neovim.until_ready()
        neovim.keys("i")
        user = User(neovim, model, chance)
        while model.now < len(transactions):
            number = model.now
            user.type(transactions[number])
            if rests[number]:
                user.rest()
        until(lambda: neovim.text() == texts[-1])
    log.info("%d transactions, %d requests, %s", len(transactions), len(edits.asked), dict(user.done))
    assert {"kept", "undone", "refuse", "jump", "ignore"} <= set(user.done)
