"""Runs the demo from start to end: starts the processes, plays the script, reports the figures, ends the processes."""

from __future__ import annotations

import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import resources
from pathlib import Path

from rich.console import Console

from lsp_server.editing.documents import Document
from midfill.demo.editor import Editor
from midfill.demo.other_layouts import mean_recomputed
from midfill.demo.picture import write_picture
from midfill.demo.player import Keystroke, play
from midfill.demo.report import report, summarize
from midfill.demo.script import SAMPLE, SCRIPT
from midfill.demo.views import showing
from midfill.headless.lsp_process import LanguageServerFailed
from midfill.headless.lsp_session import LspSession, open_session
from midfill.headless.lsp_values import ServerStatus
from midfill.headless.private_core import private_core_environment
from protocol.settings import Settings, Strategy

_URI = f"file:///demo/{SAMPLE}"
_SECONDS_PER_KEY = 0.08
_SILENCE_SECONDS = 180.0
_OTHER_LAYOUTS: tuple[Strategy, ...] = ("psm", "spm")


async def run_demo(console: Console, settings: Settings, speed: float, share: bool, svg: Path | None) -> None:
    """Run the demo; MidfillError if anything in it fails. `speed` 1 is about 12 keys per second."""
    text = resources.files("midfill").joinpath("samples", SAMPLE).read_text(encoding="utf-8")
    core: AbstractContextManager[dict[str, str]] = nullcontext({}) if share else private_core_environment()
    with core as environment:
        async with open_session(_server_command(settings), environment=environment) as session:
            session.open(_URI, "python", text)
            with console.status("starting the language server and the core") as spinner:
                await session.wait_until_ready(_SILENCE_SECONDS, lambda status: spinner.update(_progress(status)))
            keystrokes = await _play(console, session, text, _SECONDS_PER_KEY / speed)
            status = session.status
    if status is None or not any(key.cost for key in keystrokes):
        raise LanguageServerFailed("the language server answered no keystroke: run `midfill doctor`")
    other_layouts = {name: await mean_recomputed(name, settings, text, keystrokes) for name in _OTHER_LAYOUTS}
    result = report(summarize(keystrokes), other_layouts, status.model, status.device)
    console.print(result)
    console.print()
    command = "midfill" if shutil.which("midfill") else Path(sys.executable).with_name("midfill")
    console.print(
        f"Connect your editor: docs/editors.md has the lines for VS Code, Neovim, Helix and others. They run "
        f"`{command} lsp`.",
        soft_wrap=True,
    )
    if svg is not None:
        write_picture(svg, keystrokes, result)
        console.print(f"wrote the picture to {svg}")


def _progress(status: ServerStatus) -> str:
    share = f", {status.progress:.0%}" if status.progress is not None else ""
    return f"{status.message or status.state}{share}"


def _server_command(settings: Settings) -> list[str]:
    options = ("--model", settings.model, "--device", settings.device, "--dtype", settings.dtype)
    return [sys.executable, "-P", "-m", "midfill", "lsp", *options]


async def _play(console: Console, session: LspSession, text: str, seconds_per_key: float) -> list[Keystroke]:
    editor = Editor(Document.from_text(_URI, "python", 1, text))
    keystrokes: list[Keystroke] = []
    with showing(console) as show:
        async for keystroke in play(session, editor, SCRIPT, seconds_per_key):
            keystrokes.append(keystroke)
            show(keystrokes)
    return keystrokes
