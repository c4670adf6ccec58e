"""Plans the prompts of one document: keeps its anchors, and lays a new one when none holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from lsp_server.context.snippet_pool import Context
from lsp_server.documents.documents import Document, LineChange, Position
from lsp_server.prompts.anchors import Anchor, Fit, StickyEdges, WindowBudget, find, lay, suffix_stop
from protocol.messages import Prompt
from protocol.settings import ContextSource, Strategy

_MAX_ANCHORS = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """A prompt, the gap that it leaves out, and its sources."""

    prompt: Prompt
    gap: str  # auto-closed text between the cursor and the suffix: not in the prompt
    relaid: bool  # a new anchor was laid for it
    sources: frozenset[str] = frozenset()  # URIs of the other documents whose text stands in it
    origins: tuple[ContextSource, ...] = ()  # of its snippets


class _Laid(NamedTuple):
    """An anchor, and the context that was frozen with it."""

    anchor: Anchor
    context: Context


class PromptPlanner:
    """The prompts of one document: EFIM's from anchors, PSM's and SPM's from the windows at the cursor.

    The planner calls `context` for the snippets when it lays an anchor, and says whether new ones may be added to
    those of the last call. The budget gives `context` only the estimate of characters per token: the windows do not
    shrink for it. At every use of an anchor the planner calls `is_excluded` for the sources of its snippets.
    """

    def __init__(
        self,
        document: Document,
        budget: WindowBudget,
        strategy: Strategy = "efim",
        context: Callable[[WindowBudget, bool], Context] = lambda *_: Context(),
        is_excluded: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.document = document
        self.budget = budget
        self.strategy: Strategy = strategy
        self._edges = StickyEdges()
        self._context = context
        self._is_excluded = is_excluded
        self._anchors: list[_Laid] = []  # most recently used first
        self._laid_by_prefetch = False  # whether a prefetch laid the newest one, and no keystroke has used it

    def edited(self, change: LineChange) -> None:
        self._edges.edited(change)

    def observe(self, prompt: Prompt, prompt_tokens: int) -> None:
        """Update the estimate of characters per token from an answered request."""
        chars = len(prompt.prefix) + len(prompt.suffix) + len(prompt.increment)
        chars += sum(len(snippet.path) + len(snippet.text) for snippet in prompt.context)
        self.budget = self.budget.observe(chars, prompt_tokens)

    def plan(self, cursor: Position, *, prefetch: bool = False) -> Plan:
        """The prompt for this cursor; BadInput if it lies outside of the document.

        `prefetch` marks a prefetched prompt: the planner re-lays an anchor whose increment has grown past half
        of its limit, since no user waits for the prefill.
        """
        self.document.check(cursor)
        if self.strategy in ("psm", "spm"):
            return self._plan_at_cursor(cursor)
        limit = self.budget.increment_chars
        self._anchors = [laid for laid in self._anchors if not any(map(self._is_excluded, laid.context.sources))]
        for laid in self._anchors:
            fit = find(laid.anchor, self.document, cursor, limit // 2 if prefetch else limit)
            if fit is not None:
                self._laid_by_prefetch &= prefetch
                return self._use(laid, fit, cursor, relaid=False)
        anchor, fit = lay(self.document, cursor, self.budget, self._edges)
        # New snippets move all text behind them: a keystroke right after a prefetch keeps those that are resident.
        adds = prefetch or not self._laid_by_prefetch
        self._laid_by_prefetch = prefetch
        return self._use(_Laid(anchor, self._context(self.budget, adds)), fit, cursor, relaid=True)

    def holds(self, cursor: Position) -> bool:
        """Whether the prefetched prompt at this cursor needs no new anchor."""
        if self.strategy in ("psm", "spm"):
            return False
        limit = self.budget.increment_chars // 2
        return any(find(laid.anchor, self.document, cursor, limit) is not None for laid in self._anchors)

    def _use(self, laid: _Laid, fit: Fit, cursor: Position, *, relaid: bool) -> Plan:
        self._anchors = [laid, *(other for other in self._anchors if other is not laid)][:_MAX_ANCHORS]
        anchor = laid.anchor
        prompt = Prompt(
            prefix=_prompt_text(anchor.prefix),
            suffix=_prompt_text(anchor.suffix),
            increment=_prompt_text(self.document.slice(fit.start, cursor)),
            context=laid.context.snippets,
        )
        return Plan(prompt, self.document.slice(cursor, fit.suffix_start), relaid, laid.context.sources, laid.context.origins)

    def _plan_at_cursor(self, cursor: Position) -> Plan:
        document, budget = self.document, self.budget
        first = self._edges.start_for(document, cursor.line, budget.prefix_chars - cursor.column)
        head = document.lines[cursor.line][cursor.column :]
        stop = suffix_stop(document, cursor.line + 1, budget.suffix_chars - len(head))
        context = self._context(budget, True)
        prompt = Prompt(
            prefix=_prompt_text(document.slice(Position(first, 0), cursor)),
            suffix=_prompt_text(head + "".join(document.lines[cursor.line + 1 : stop])),
            context=context.snippets,
            order="spm" if self.strategy == "spm" else "psm",
        )
        return Plan(prompt, gap="", relaid=True, sources=context.sources, origins=context.origins)


def _prompt_text(text: str) -> str:
    """The text with \\n for all line ends, as models are trained; a filter restores the document's own."""
    return text.replace("\r\n", "\n")
