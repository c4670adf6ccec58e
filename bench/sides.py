"""The sides of a comparison of keystrokes: midfill's language server, llama-server, and vLLM as Continue asks it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from llama_server import LlamaServer
from playing import Session
from vllm_server import VllmServer

from inference.text.tokenization import TextTokenizer
from lsp_server.editing.documents import Document, Position
from lsp_server.prompts.planner import PromptPlanner
from lsp_server.prompts.windows import WindowBudget
from midfill.replay.targets import SessionTarget
from midfill.replay.trace import Step
from protocol.messages import Prompt

STOP = "\n"


@dataclass(frozen=True, slots=True)
class Timed:
    """One keystroke of one side."""

    milliseconds: float
    recomputed_tokens: int
    generated_tokens: int
    forwards: int | None = None  # None if the side does not report it; fewer than tokens when drafts are accepted


class Side(Protocol):
    """A program in the comparison, which follows the session by itself."""

    name: str

    async def play(self, step: Step) -> Timed: ...


class MidfillSide:
    """The language server and its core."""

    def __init__(self, name: str, target: SessionTarget) -> None:
        self.name = name
        self._target = target

    async def play(self, step: Step) -> Timed:
        answer = await self._target.play(step, tell_move=True)
        if answer.usage is None:
            return Timed(answer.milliseconds, 0, 0, 0)
        usage = answer.usage
        return Timed(answer.milliseconds, usage.recomputed_tokens, usage.generated_tokens, usage.forwards)


class _PeerSide:
    """A server asked directly, and a mirror of the document from which its prompts are cut."""

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self._document = Document.from_text("file:///bench", session.language, 1, session.text)
        self._max_new_tokens = session.max_new_tokens


class LlamaVimSide(_PeerSide):
    """`/infill` as llama.vim asks it: whole lines around the cursor, which move with it, in a slot of its own."""

    LINES_BEFORE, LINES_AFTER = 256, 64  # llama.vim's n_prefix and n_suffix

    def __init__(self, name: str, session: Session, server: LlamaServer, slot: int) -> None:
        super().__init__(name, session)
        self._server, self._slot = server, slot

    async def play(self, step: Step) -> Timed:
        for edit in step.edits:
            self._document.apply(edit)
        lines, (line, column) = self._document.lines, (step.cursor.line, step.cursor.column)
        before = "".join(lines[max(0, line - self.LINES_BEFORE) : line]) + lines[line][:column]
        after = lines[line][column:] + "".join(lines[line + 1 : line + 1 + self.LINES_AFTER])
        answer = self._server.infill(Prompt(before, after), self._max_new_tokens, [STOP], self._slot)
        return Timed(answer.milliseconds, answer.recomputed_tokens, answer.generated_tokens)


class LlamaSide(_PeerSide):
    """llama-server with the windows that midfill's own PSM strategy cuts."""

    def __init__(self, name: str, session: Session, server: LlamaServer, *, tell_moves: bool) -> None:
        super().__init__(name, session)
        self.server, self._tell_moves = server, tell_moves
        self._planner = PromptPlanner(self._document, WindowBudget(), "psm")

    async def play(self, step: Step) -> Timed:
        if self._tell_moves and step.moved_to is not None:
            self.server.infill(self.prompt(step.moved_to), max_tokens=0)
        for edit in step.edits:
            self._planner.edited(self._document.apply(edit))
        prompt = self.prompt(step.cursor)
        answer = self.server.infill(prompt, self._max_new_tokens, [STOP])
        self._planner.observe(prompt, answer.prompt_tokens)
        return Timed(answer.milliseconds, answer.recomputed_tokens, answer.generated_tokens)

    def prompt(self, cursor: Position) -> Prompt:
        """The windows around the cursor."""
        return self._planner.plan(cursor).prompt


class ContinueSide(_PeerSide):
    """vLLM as Continue asks it: PSM, rendered to text, in the windows of Continue's defaults.

    Of at most 1,024 tokens, 30 % are the lines before the cursor and 20 % those behind it (`maxPromptTokens`,
    `prefixPercentage`, `maxSuffixPercentage` in core/util/parameters.ts); the rest is for snippets, here none. Whole
    lines are dropped, at the top of the prefix and at the bottom of the suffix.
    """

    PREFIX_TOKENS, SUFFIX_TOKENS = 307, 204

    def __init__(self, name: str, session: Session, server: VllmServer, tokenizer: TextTokenizer) -> None:
        super().__init__(name, session)
        self._server, self._tokenizer = server, tokenizer

    async def play(self, step: Step) -> Timed:
        for edit in step.edits:
            self._document.apply(edit)
        answer = self._server.complete(self._prompt(step.cursor), self._max_new_tokens, [STOP])
        return Timed(answer.milliseconds, answer.prompt_tokens - answer.cached_tokens, answer.generated_tokens)

    def _prompt(self, cursor: Position) -> str:
        lines = self._document.lines
        line = lines[cursor.line]
        above = self._within(reversed((*lines[: cursor.line], line[: cursor.column])), self.PREFIX_TOKENS)
        below = self._within((line[cursor.column :], *lines[cursor.line + 1 :]), self.SUFFIX_TOKENS)
        fim = self._tokenizer.format
        return f"{fim.prefix}{''.join(reversed(above))}{fim.suffix}{''.join(below) or STOP}{fim.middle}"

    def _within(self, lines: Iterable[str], tokens: int) -> list[str]:
        kept: list[str] = []
        for line in lines:
            tokens -= self._tokenizer.count_tokens(line)
            if tokens < 0:
                break
            kept.append(line)
        return kept
