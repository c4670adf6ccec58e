"""The verdict of the exclusion rules about one document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal["secret", "gitignore", "midfillignore", "other", "unchecked"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a document's text stays out of other documents' prompts.

    `cause` "gitignore" concerns these alone, unless the setting `ignoredFiles` is `off`: git ignores a file because it
    is generated or personal, not because it is secret. Every other cause keeps the text out of its own prompts too.
    """

    rule: str  # with its file and line, for messages
    cause: Cause
