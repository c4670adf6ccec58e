"""The messages between the playground's page and its session, as JSON with the tag `type`."""

from __future__ import annotations

from typing import Literal

import msgspec

from protocol.errors import BadInput
from protocol.heat import Heat
from protocol.messages import Usage, Value


class Place(Value, frozen=True):
    """A position as in LSP: line and character from 0, in UTF-16 code units."""

    line: int
    character: int


class Replacement(Value, frozen=True):
    """A change: the text between two places becomes another one."""

    start: Place
    end: Place
    text: str


class Open(Value, frozen=True, tag=True):
    """From the page: show this document; it replaces one of the same name."""

    name: str
    language: str
    text: str


class Edit(Value, frozen=True, tag=True):
    """From the page: changes of an open document, each in the coordinates that the one before it left."""

    name: str
    version: int
    changes: tuple[Replacement, ...]


class Suggest(Value, frozen=True, tag=True):
    """From the page: suggest here; `invoked` by hand, which asks for alternatives and shows unlikely ones too."""

    id: int
    name: str
    place: Place
    invoked: bool = False


class Move(Value, frozen=True, tag=True):
    """From the page: the cursor moved without an edit."""

    name: str
    place: Place


class ListModels(Value, frozen=True, tag=True):
    """From the page: send the models of this machine."""


class UseModel(Value, frozen=True, tag=True):
    """From the page: connect to the core of this model, and start it if none runs."""

    model: str


class LinkDashboard(Value, frozen=True, tag=True):
    """From the page: send a link to the core's dashboard."""


class Suggestions(Value, frozen=True, tag=True):
    """To the page: the texts for `id`, the best first, and how many UTF-16 units behind the cursor each replaces."""

    id: int
    items: tuple[tuple[str, int], ...]


class Cost(Value, frozen=True, tag=True):
    """To the page: what a prompt cost."""

    ahead: bool
    source: Literal["core", "typed"]
    heat: Heat
    milliseconds: float
    usage: Usage


class Status(Value, frozen=True, tag=True):
    """To the page: the core's status, and the model that the page asked for."""

    state: str
    model: str
    device: str = ""
    message: str = ""
    progress: float | None = None


class Excluded(Value, frozen=True, tag=True):
    """To the page: why this document gets no suggestions, whatever the reason; None once it does."""

    name: str
    reason: str | None


class Models(Value, frozen=True, tag=True):
    """To the page: the models on this machine."""

    models: tuple[Model, ...]


class Model(Value, frozen=True):
    """A model by its name, in words, and why it cannot run here; `running` if a core serves it."""

    name: str
    summary: str
    problem: str = ""
    running: bool = False


class Link(Value, frozen=True, tag=True):
    """To the page: the address of the core's dashboard."""

    url: str


class Failed(Value, frozen=True, tag=True):
    """To the page: a message could not be carried out; `id` is that of a suggestion's request."""

    message: str
    id: int | None = None


FromPage = Open | Edit | Suggest | Move | ListModels | UseModel | LinkDashboard
ToPage = Suggestions | Cost | Status | Excluded | Models | Link | Failed

_from_pages: msgspec.json.Decoder[FromPage] = msgspec.json.Decoder(FromPage)


def decode(text: str) -> FromPage:
    """The message in `text`; BadInput, with the field at fault, if it is none."""
    try:
        return _from_pages.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not a message of the playground: {error}: {text[:200]!r}") from error


def encode(message: ToPage) -> str:
    """The JSON text of a message."""
    return msgspec.json.encode(message).decode()
