"""Runs the demo from start to end: starts the processes, plays the script, reports the figures, ends the processes."""

from __future__ import annotations

import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console

from lsp_server.editing.documents import Document
from midfill.demo.editor import Editor
from midfill.demo.other_layouts import mean_recomputed
from midfill.demo.picture import write_picture
from midfill.demo.player import Keystroke, play
from midfill.demo.report import report, summarize
from midfill.demo.script import Scene
from midfill.demo.views import showing
from midfill.headless.lsp_process import LanguageServerFailed
from midfill.headless.lsp_session import LspSession, open_session
from midfill.headless.lsp_values import ServerStatus
from midfill.headless.private_core import private_core_environment
from midfill.waiting import Waiting
from protocol.settings import Settings, Strategy

_WORDS = {"starting": "starting the core", "unloaded": "the core has started", "loading": "loading the model"}
_SECONDS_PER_KEY = 0.08
_SILENCE_SECONDS = 180.0
_OTHER_LAYOUTS: tuple[Strategy, ...] = ("psm", "spm")


async def run_demo(
    console: Console, settings: Settings, scene: Scene, speed: float, share: bool, svg: Path | None
) -> None:
    """Run the demo; MidfillError if anything in it fails. `speed` 1 is about 12 keys per second."""
    core: AbstractContextManager[dict[str, str]] = nullcontext({}) if share else private_core_environment()
    with core as environment:
        async with open_session(_server_command(settings), environment=environment) as session:
            session.open(_uri(scene), scene.language, scene.text)
            with Waiting() as waiting:
                waiting.on("starting the language server")
                await session.wait_until_ready(_SILENCE_SECONDS, lambda status: _tell(waiting, status))
            keystrokes = await _play(console, session, scene, _SECONDS_PER_KEY / speed)
            status = session.status
    if status is None or not any(key.cost for key in keystrokes):
        raise LanguageServerFailed("the language server answered no keystroke: run `midfill doctor`")
    other_layouts = {name: await mean_recomputed(name, settings, scene, keystrokes) for name in _OTHER_LAYOUTS}
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
        write_picture(svg, keystrokes, scene)
        console.print(f"wrote the picture to {svg}")


def _uri(scene: Scene) -> str:
    return f"file:///demo/{scene.sample}"


def _tell(waiting: Waiting, status: ServerStatus) -> None:
    waiting.on(status.message or _WORDS.get(status.state, status.state), status.progress)


def _server_command(settings: Settings) -> list[str]:
    options = ("--model", settings.model, "--device", settings.device, "--dtype", settings.dtype)
    return [sys.executable, "-P", "-m", "midfill", "lsp", *options]


async def _play(console: Console, session: LspSession, scene: Scene, seconds_per_key: float) -> list[Keystroke]:
    editor = Editor(Document.from_text(_uri(scene), scene.language, 1, scene.text))
    keystrokes: list[Keystroke] = []
    with showing(console, scene) as show:
        async for keystroke in play(session, editor, scene.script, seconds_per_key):
            keystrokes.append(keystroke)
            show(keystrokes)
    return keystrokes
