"""Checks one file: whether the language server suggests in it, in the words that editors show."""

from __future__ import annotations

from pathlib import Path

from lsp_server.core.link import CoreLink, LinkStatus
from lsp_server.editing.languages import language_id_of
from lsp_server.suggesting.editing_session import EditingSession
from midfill.doctor.findings import Section
from midfill.workspaces import workspace_of
from protocol.settings import Settings


async def suggestions(file: Path, settings: Settings) -> Section:
    """Why the file gets no suggestions by its name, its rules and the settings, whatever the core does."""
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        return Section("suggestions", ((str(file), "unreadable"),), (f"{file} cannot be read: {error.strerror}",))
    core = CoreLink(lambda _: None)
    core.status = LinkStatus("ready")  # as far as the file's reason goes: it gets no request
    session = EditingSession(core, settings, "doctor", lambda _: None)
    path = file.resolve()
    session.documents.use_folders([workspace_of(path).as_uri()])
    opened = session.documents.open(path.as_uri(), language_id_of(path.suffix), 1, text)
    await opened.surroundings.verdicts.look([opened.document.uri])
    reason = session.explainer.reason(opened)
    return Section("suggestions", ((str(file), "on" if reason is None else f"{reason.text}: {reason.explanation}"),))
