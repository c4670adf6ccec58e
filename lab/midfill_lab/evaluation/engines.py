"""The engines that an evaluation can use: one in this process, or a core by its address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from anyio.from_thread import start_blocking_portal

from midfill_lab.evaluation.runner import Asking, Complete, completes_with, texts_of, token_ends_of
from midfill_lab.evaluation.tasks import TokenEnds
from protocol.errors import BadInput
from protocol.messages import CoreStatus, Prompt, StopRule
from protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A model that can be asked; `heals` is None if only the core knows whether it heals."""

    name: str
    title: str
    complete: Complete
    token_ends: TokenEnds
    chars_per_token: float
    heals: bool | None


@contextmanager
def engine_in_process(settings: Settings, healing: Literal["auto", "on", "off"], asking: Asking) -> Iterator[Evaluated]:
    """The model of the settings, loaded into this process."""
    from inference.loading.engine import load_engine
    from inference.loading.options import EngineOptions
    from inference.text.healing import wants_healing

    engine = load_engine(
        EngineOptions(
            model=settings.model,
            device=settings.device,
            dtype=settings.dtype,
            weights=settings.weights,
            context_tokens=8192,
            store_budget_bytes=0,
            exact=settings.exact,
            fim_format=settings.fim_format,
            healing=healing,
        )
    )
    heals = wants_healing(healing, engine.tokenizer.format)
    try:
        yield Evaluated(
            settings.model,
            f"{settings.model} on {engine.info.device}, healing {'on' if heals else 'off'}",
            completes_with(engine, asking),
            token_ends_of(engine.tokenizer),
            engine.info.chars_per_token,
            heals,
        )
    finally:
        engine.close()


@contextmanager
def core_by_address(settings: Settings, asking: Asking) -> Iterator[Evaluated]:
    """The core that the setting `core` names; the errors of a connection if there is none.

    Its own settings decide on device, healing and the like. Every prompt is computed cold there, too.
    """
    from lsp_server.core.client import CoreClient
    from lsp_server.core.target import remote_endpoint

    status = CoreStatus("unloaded", "")

    def hear(heard: CoreStatus) -> None:
        nonlocal status
        status = heard

    def ask(prompt: Prompt, stop: StopRule, how: Asking = asking) -> tuple[str, ...]:
        return texts_of(portal.call(client.complete, how.request(prompt, stop)))

    with start_blocking_portal() as portal:  # a thread of its own serves the connection while tests run here
        client = portal.call(CoreClient.open, remote_endpoint(settings), hear)
        try:
            ask(Prompt("a = 1\n", "\n"), StopRule(), Asking(0))  # loads the model; the core then says what it is
            title = f"{status.model} on {status.device}, by the core at {settings.core}"
            yield Evaluated(status.model, title, ask, _no_token_ends, status.chars_per_token, None)
        finally:
            portal.call(client.close)


def _no_token_ends(_: str) -> list[int]:
    raise BadInput("a core does not show where tokens end")
