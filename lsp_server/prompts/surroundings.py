"""What surrounds the documents of a workspace: which of them may enter prompts, and what they lend to each other's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsp_server.editing.documents import Document
from lsp_server.editing.file_uris import shown_path
from lsp_server.exclusion.exclusion import Exclusion
from lsp_server.exclusion.verdicts import Verdicts
from lsp_server.prompts.other_files import ContextRing
from lsp_server.prompts.planner import PromptPlanner
from lsp_server.prompts.windows import WindowBudget
from protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The verdicts by the rules of some workspace folders, and the ring of what was viewed and edited in them."""

    verdicts: Verdicts
    ring: ContextRing

    @classmethod
    def of_folders(cls, folders: Sequence[str], now: Callable[[], float] = time.monotonic) -> Surroundings:
        """Those of these folders' URIs, with nothing viewed yet."""
        verdicts = Verdicts(Exclusion(folders, now), now)
        return cls(verdicts, ContextRing(verdicts.is_excluded, lambda uri: shown_path(uri, folders)))

    def planner(self, document: Document, settings: Settings) -> PromptPlanner:
        """The planner of a document's prompts, with context from the other documents where the settings want it."""
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
