"""Admits replicas that serve the engine's model, and checks in the background that they still do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from inference.remote.replicas import Replica
from inference.remote.servers.interface import ServerFacts
from inference.remote.servers.tokenizers import SAMPLE, disagreement
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadInput, BadModel, Busy, MidfillError

CHECK_EVERY_S = 2.0
CHECK_PATIENCE_S = 5.0
"""Seconds after which a replica that does not answer a check is suspected: it may be busy."""
SILENT_CHECKS = 4
"""Checks in a row without an answer after which it is down."""
JOIN_PATIENCE_S = 60.0
"""As CHECK_PATIENCE_S, for a replica that joins: a server may load its model, or compile its first constraint."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What all replicas have in common."""

    name: str
    context_tokens: int  # longest prompt plus completion; a replica may allow more
    heals: bool  # every replica can force the first bytes of a text
    tokenizer: TextTokenizer

    async def admit(self, replica: Replica, facts: ServerFacts) -> bool:
        """Let a replica join; BadModel if it serves another model, or less. False if it does not tell its tokens."""
        if facts.name != self.name:
            raise BadModel(
                f"{replica.address} serves the model {facts.name!r}, and the other replicas serve {self.name!r}: they "
                "have to serve one model under one name (vLLM: --served-model-name, llama-server: --alias)"
            )
        if facts.context_tokens < self.context_tokens:
            raise BadModel(
                f"{replica.address} has a context of {facts.context_tokens} tokens, and the engine one of "
                f"{self.context_tokens}: set contextTokens to {facts.context_tokens}"
            )
        if self.heals and not facts.can_constrain:
            raise BadModel(
                f"{replica.address} cannot force the first bytes of a text, as other replicas can: set healing to off"
            )
        theirs = await replica.server.tokenize(SAMPLE)
        difference = "" if theirs is None else disagreement(self.tokenizer, theirs)
        if difference:
            raise BadModel(
                f"the tokenizer is not that of the model at {replica.address}: {difference}. Name the model that the "
                "engine serves with --model"
            )
        replica.join(facts)
        return theirs is not None


async def watch(replica: Replica, model: ServedModel, on_change: Callable[[], None]) -> None:
    """Check the replica until cancelled: take it out while it does not answer, and let it join again."""
    silent = 0
    while True:
        await replica.suspected_within(CHECK_EVERY_S)
        before = replica.state
        silent += 1
        try:
            await _check(replica, model)
            silent = 0
        except Busy:
            silent = 0  # it answers
        except BadInput as error:
            replica.leave(str(error), refused=True)
        except MidfillError as error:
            replica.leave(str(error))
        except TimeoutError:
            reason = f"{replica.address} does not answer within {CHECK_PATIENCE_S:.0f} s"
            if silent < SILENT_CHECKS and replica.serves:
                replica.suspect(reason)
            else:
                replica.leave(reason)
        except Exception:
            log.exception("%s could not be checked", replica.address)
        if replica.state != before:
            on_change()


async def _check(replica: Replica, model: ServedModel) -> None:
    async with asyncio.timeout(CHECK_PATIENCE_S):
        name = await replica.server.check()
    if replica.state != "up" or name != model.name:
        async with asyncio.timeout(JOIN_PATIENCE_S):
            facts = await replica.server.facts()
            await model.admit(replica, facts)
