"""The shared state of a workspace's documents: exclusion verdicts, and the visited lines that snippets are cut from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lsp_server.context.gathering import Gathering
from lsp_server.context.index.database import index_file
from lsp_server.context.ring import ContextRing
from lsp_server.editing.documents import Document, Position
from lsp_server.editing.file_uris import shown_path, split_uri
from lsp_server.exclusion.exclusion import Exclusion, is_usable
from lsp_server.exclusion.verdicts import Verdicts
from lsp_server.prompts.planner import PromptPlanner
from lsp_server.prompts.windows import WindowBudget
from protocol.settings import ContextSource, Settings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The exclusion verdicts for some workspace folders, and the ring of lines viewed and edited in them."""

    verdicts: Verdicts
    ring: ContextRing
    gathering: Gathering
    folders: tuple[Path, ...] = ()

    @classmethod
    def of_folders(cls, folders: Sequence[str], now: Callable[[], float] = time.monotonic) -> Surroundings:
        """The surroundings of these folders' URIs, with nothing viewed yet."""
        verdicts = Verdicts(Exclusion(folders, now), now)
        ring = ContextRing(verdicts.is_excluded, lambda uri: shown_path(uri, folders))
        paths = tuple(Path(path) for path in (split_uri(uri).path for uri in folders) if is_usable(path))
        return cls(verdicts, ring, Gathering(ring, verdicts, {path: index_file(path) for path in paths}), paths)

    def planner(self, document: Document, settings: Settings) -> PromptPlanner:
        """The planner of a document's prompts, with snippets of other documents if the settings enable them."""
        budget = WindowBudget(settings.prefix_tokens, settings.suffix_tokens)
        sources = enabled_sources(settings)
        if not sources:
            return PromptPlanner(document, budget, settings.strategy)
        return PromptPlanner(
            document,
            budget,
            settings.strategy,
            context=lambda budget, adds: self.ring.context_for(
                document.uri,
                document.language_id,
                int(settings.other_files_tokens * budget.chars_per_token),
                sources,
                adds=adds,
            ),
            is_excluded=self.verdicts.is_excluded,
        )

    async def gather(self, document: Document, cursor: Position, settings: Settings) -> None:
        """Let the sources prepare proposals for a prompt at the cursor; call it where no user waits."""
        await self.gathering.gather(document, cursor, enabled_sources(settings))


def enabled_sources(settings: Settings) -> tuple[ContextSource, ...]:
    """The sources that the settings enable; none if text of other files is off."""
    return settings.context_sources if settings.other_files else ()
