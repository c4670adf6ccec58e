"""The shared state of a workspace's documents: exclusion verdicts, and the visited lines that snippets are cut from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsp_server.context.ring import ContextRing
from lsp_server.editing.documents import Document
from lsp_server.editing.file_uris import shown_path
from lsp_server.exclusion.exclusion import Exclusion
from lsp_server.exclusion.verdicts import Verdicts
from lsp_server.prompts.planner import PromptPlanner
from lsp_server.prompts.windows import WindowBudget
from protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The exclusion verdicts for some workspace folders, and the ring of lines viewed and edited in them."""

    verdicts: Verdicts
    ring: ContextRing

    @classmethod
    def of_folders(cls, folders: Sequence[str], now: Callable[[], float] = time.monotonic) -> Surroundings:
        """The surroundings of these folders' URIs, with nothing viewed yet."""
        verdicts = Verdicts(Exclusion(folders, now), now)
        return cls(verdicts, ContextRing(verdicts.is_excluded, lambda uri: shown_path(uri, folders)))

    def planner(self, document: Document, settings: Settings) -> PromptPlanner:
        """The planner of a document's prompts, with snippets of other documents if the settings enable them."""
        budget = WindowBudget(settings.prefix_tokens, settings.suffix_tokens)
        if not settings.other_files:
            return PromptPlanner(document, budget, settings.strategy)
        return PromptPlanner(
            document,
            budget,
            settings.strategy,
            context=lambda budget: self.ring.context_for(
                document.uri, document.language_id, int(settings.other_files_tokens * budget.chars_per_token)
            ),
            is_excluded=self.verdicts.is_excluded,
        )
