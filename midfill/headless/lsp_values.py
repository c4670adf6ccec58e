"""Values that an editor receives from the language server: suggestions, their costs, and the server's status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from lsp_server.editing.documents import Position
from lsp_server.editing.positions import ClientPosition
from protocol.heat import Heat
from protocol.messages import Usage


@dataclass(frozen=True, slots=True)
class Suggestion:
    """An item of an inline completion: `text` replaces [start, end)."""

    text: str
    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The cost of a prompt, as the server reports it (`midfill/usage`)."""

    uri: str
    version: int
    position: ClientPosition  # of the prompt's cursor
    ahead: bool  # whether it was ahead work
    source: str
    heat: Heat
    usage: Usage
    milliseconds: float  # from the request to the core to its answer

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> UsageReport:
        """From the parameters of `midfill/usage`."""
        return cls(
            uri=fields["textDocument"]["uri"],
            version=fields["version"],
            position=ClientPosition(**fields["position"]),
            ahead=fields["ahead"],
            source=fields["source"],
            heat=fields["heat"],
            usage=Usage(**fields["usage"]),
            milliseconds=fields["ms"],
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request; `cost` is None if the server sent nothing to the core."""

    suggestions: tuple[Suggestion, ...]
    milliseconds: float  # from the bytes of the request to those of the answer, at the pipes
    cost: UsageReport | None


class ServerStatus(msgspec.Struct, frozen=True):
    """The server's status (`midfill/status`)."""

    state: str
    message: str
    model: str
    device: str
    progress: float | None  # of loading, 0..1; None if unknown
