"""Runs the demo from start to end: starts the processes, types a session, reports the figures, ends the processes."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from lsp_server.editing.languages import language_id_of
from midfill.demo.other_layouts import mean_recomputed
from midfill.demo.picture import write_picture
from midfill.demo.player import Keystroke, play
from midfill.demo.report import report, summarize
from midfill.demo.views import showing
from midfill.headless.lsp_process import LanguageServerFailed
from midfill.headless.lsp_values import ServerStatus
from midfill.replay.player import open_server
from midfill.replay.trace import play as steps_of
from midfill.replay.trace import read_trace
from midfill.waiting import Waiting
from protocol.settings import Settings, Strategy

_WORDS = {"starting": "starting the core", "unloaded": "the core has started", "loading": "loading the model"}
_SECONDS_PER_KEY = 0.08
_SAMPLES = Path(__file__).parents[1] / "samples"
_OTHER_LAYOUTS: tuple[Strategy, ...] = ("psm", "spm")


async def run_demo(
    console: Console, settings: Settings, sample: str, speed: float, share: bool, svg: Path | None
) -> None:
    """Type the recorded session of a sample file; MidfillError if anything fails. `speed` 1 is 12 keys per second."""
    recorded = read_trace(_SAMPLES / f"{sample}.json")
    language, keystrokes = language_id_of(Path(sample).suffix), list[Keystroke]()
    with Waiting() as waiting:
        waiting.on("starting the language server")
        hear = partial(_tell, waiting)
        async with open_server(settings, language, recorded.start, shared=share, hear=hear) as target:
            waiting.over()
            with showing(console, sample, language) as show:
                async for keystroke in play(target, recorded.start, [*steps_of(recorded)], _SECONDS_PER_KEY / speed):
                    keystrokes.append(keystroke)
                    show(keystrokes)
            status = target.session.status
    if status is None or not any(key.cost for key in keystrokes):
        raise LanguageServerFailed("the language server answered no keystroke: run `midfill doctor`")
    other_layouts = {
        name: await mean_recomputed(name, settings, language, recorded.start, keystrokes) for name in _OTHER_LAYOUTS
    }
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
        write_picture(svg, keystrokes, sample, language)
        console.print(f"wrote the picture to {svg}")


def _tell(waiting: Waiting, status: ServerStatus) -> None:
    waiting.on(status.message or _WORDS.get(status.state, status.state), status.progress)
