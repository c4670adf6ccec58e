"""The command `midfill demo`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer
from rich.console import Console

from protocol.settings import Settings

_INTERRUPTED = 130
SAMPLES = {"python": "warehouse.py", "typescript": "basket.ts"}  # recorded sessions: midfill/samples


def demo_command(
    settings: Settings,
    speed: Annotated[float, typer.Option(min=0.1, help="Typing speed; 1 is about 12 keys per second.")] = 1.0,
    share: Annotated[bool, typer.Option("--share", help="Use the core that editors use instead of a private one.")] = False,
    language: Annotated[Literal["python", "typescript"], typer.Option(help="The language of the code that is typed.")] = "python",
) -> None:
    """Watch a language server and a core at work.

    The demo types code key by key and shows the cost of each key. Both run as real processes. Unless --share is given,
    the demo starts a core of its own, which ends with it.
    """
    from midfill.demo.demo import run_demo

    console = Console()
    try:
        asyncio.run(run_demo(console, settings, SAMPLES[language], speed, share=share))
    except KeyboardInterrupt:
        console.print("stopped")
        raise typer.Exit(_INTERRUPTED) from None
