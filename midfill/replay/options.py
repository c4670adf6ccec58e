"""The options of `midfill replay`, besides settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from midfill.takes_options import chosen
from protocol.errors import BadInput
from protocol.settings import Strategy

Mode = Literal["stdio", "engine", "dry"]

STRATEGIES: tuple[Strategy, ...] = ("none", "psm", "spm", "efim")


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options, as the command line spells them."""

    dry: Annotated[bool, typer.Option("--dry", help="Count tokens without running the model: fast.")] = False
    engine: Annotated[bool, typer.Option("--engine", help="Run the model in this process, without a server.")] = False
    strategies: Annotated[str, typer.Option(help="Prompt layouts to compare, comma separated.")] = ",".join(STRATEGIES)
    start: Annotated[int, typer.Option(min=0, help="First transaction to play.")] = 0
    limit: Annotated[int | None, typer.Option(min=1, help="Number of transactions to play.")] = None
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Token limit for a suggestion.")] = 16
    moves: Annotated[
        bool,
        typer.Option("--moves", help="Announce cursor moves before edits in other places, as editors do (efim only)."),
    ] = False
    moves_for_all: Annotated[bool, typer.Option("--moves-for-all", help="Announce cursor moves to every layout.")] = (
        False
    )
    language: Annotated[str, typer.Option(help="The document's language id.")] = "plaintext"
    verify: Annotated[
        int, typer.Option(min=0, help="Number of requests to repeat without reuse; a different text is an error.")
    ] = 0
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the summary as JSON to this file; - for stdout.")
    ] = None

    @property
    def mode(self) -> Mode:
        """What answers the requests; BadInput if the options ask for two."""
        if self.dry and (self.engine or self.verify):
            other = "--engine" if self.engine else "--verify"
            raise BadInput(f"--dry and {other} exclude each other: the dry run has no model")
        return "dry" if self.dry else "engine" if self.engine else "stdio"

    @property
    def layouts(self) -> tuple[Strategy, ...]:
        """The strategies to compare; BadInput for an unknown one."""
        return chosen("--strategies", self.strategies, STRATEGIES)
