"""Checks one file: whether the language server suggests in it, in the words that editors show."""

from __future__ import annotations

from pathlib import Path

from lsp_server.editing.languages import language_id_of
from lsp_server.suggesting.editing_session import EditingSession
from midfill.doctor.findings import Section
from midfill.workspaces import workspace_of
from protocol.messages import Completion, CompletionRequest
from protocol.settings import Settings


async def suggestions(file: Path, settings: Settings) -> Section:
    """Why the file gets no suggestions by its name, its rules and the settings, whatever the core does."""
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        return Section("suggestions", ((str(file), "unreadable"),), (f"{file} cannot be read: {error.strerror}",))
    session = EditingSession(_NoCore(), settings, "doctor", lambda _: None)
    path = file.resolve()
    session.documents.use_folders([workspace_of(path).as_uri()])
    opened = session.documents.open(path.as_uri(), language_id_of(path.suffix), 1, text)
    await opened.surroundings.verdicts.look([opened.document.uri])
    reason = session.explainer.reason(opened)
    return Section("suggestions", ((str(file), "on" if reason is None else f"{reason.text}: {reason.explanation}"),))


class _NoCore:
    """Stands in for a core that is ready, and gets no request."""

    ready = True
    chars_per_token = 0.0

    async def complete(self, request: CompletionRequest) -> Completion:
        raise NotImplementedError(request)

    def forget(self, session: str) -> None:
        """Has nothing."""

    def release(self, session: str) -> None:
        """Has nothing."""
