"""What an editor hears from the language server: suggestions, what they cost, and what the server is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
class Cost:
    """What the server says that a prompt cost (`midfill/usage`)."""

    uri: str
    version: int
    position: ClientPosition  # of the cursor that it was for
    ahead: bool  # no request waited for it
    source: str
    heat: Heat
    usage: Usage
    milliseconds: float  # from the request to the core to its answer

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Cost:
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
    """What came back for one request; `cost` is None where the server did not ask the core."""

    suggestions: tuple[Suggestion, ...]
    milliseconds: float  # from the bytes of the request to those of the answer, at the pipes
    cost: Cost | None


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What the server says that it is doing (`midfill/status`)."""

    state: str
    message: str
    model: str
    device: str
    progress: float | None  # 0..1, where it is known how far the loading is

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ServerStatus:
        """From the parameters of `midfill/status`."""
        return cls(fields["state"], fields["message"], fields["model"], fields["device"], fields["progress"])
