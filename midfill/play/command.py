"""The command `midfill play`, which shows an editor in the user's browser."""

from __future__ import annotations

import asyncio
import threading
import webbrowser
from contextlib import suppress
from typing import Annotated

import typer

from protocol.settings import Settings

_Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser, or only print the address.")]
_MOST_CONNECTIONS = 256


def play_command(
    settings: Settings,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0,
    browser: _Browser = True,
) -> None:
    """Try midfill in the browser: an editor with suggestions from this machine's core, and what each key costs.

    It serves the page on this machine alone until you end it with Ctrl+C. The core keeps running, as for an editor.
    """
    from inference.core.connections import Connections
    from inference.core.pages import PageKeys
    from inference.core.process import bind, serve_app
    from midfill.play.session import make_app

    keys, connections = PageKeys(), Connections(_MOST_CONNECTIONS)
    with bind("127.0.0.1", port) as listener:
        port = listener.getsockname()[1]
        page = f"http://127.0.0.1:{port}/playground"
        typer.echo(f"{page}#{keys.key}")
        if browser:  # some return only when they are closed
            threading.Thread(target=webbrowser.open, args=(f"{page}#{keys.new_code()}",), daemon=True).start()
        typer.echo("End it with Ctrl+C.", err=True)
        app = make_app(settings, port, keys, connections)
        with suppress(KeyboardInterrupt):
            asyncio.run(serve_app(app, connections, [listener], lambda: False))
