"""Downloads by the command and by an editor, in processes of their own, from a hub on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests.e2e.conftest import OpenEditor
from tests.inference.checkpoints.fake_hub import FakeHub
from tests.lsp_server.editor import until

LARGE = 64 * 2**20  # several of the 10 MB pieces that the hub's library takes at once


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with a large file in two quantizations, and an empty cache; for the processes that tests start."""
    with FakeHub().listening() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        content = os.urandom(LARGE)
        hub.repositories["someone/m-GGUF"] = {"m-Q8_0.gguf": content, "m-Q4_K_M.gguf": content[: LARGE // 2]}
        yield hub


def download(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "midfill", "models", "download", *options, name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def parts(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*.incomplete")]


def test_a_command_is_interrupted_and_goes_on(hub: FakeHub, tmp_path: Path) -> None:
    hub.pause_s = 1.5  # a busy machine may notice the first piece late
    command = [sys.executable, "-m", "midfill", "models", "download", "someone/m-GGUF:Q8_0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not any(parts(tmp_path)):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "someone/m-GGUF:Q8_0: 67 MB, licence: apache-2.0" in said
    assert said.endswith("midfill: stopped; `midfill models download someone/m-GGUF:Q8_0` goes on from there\n")
    (kept,) = parts(tmp_path)
    hub.pause_s = 0
    whole = download("someone/m-GGUF:Q8_0")
    assert whole.returncode == 0, whole.stderr
    assert Path(whole.stdout.strip()).stat().st_size == LARGE
    assert hub.ranges[-1] == ("m-Q8_0.gguf", f"bytes={kept}-")


def test_errors_and_choices_are_told(hub: FakeHub) -> None:
    several = download("someone/m-GGUF")
    assert several.returncode == 2
    assert "choose one of someone/m-GGUF:Q4_K_M (34 MB), someone/m-GGUF:Q8_0 (67 MB)" in several.stderr
    assert "Traceback" not in several.stderr
    choices = json.loads(download("someone/m-GGUF", "--json").stdout)["choices"]
    assert [choice["name"] for choice in choices] == ["someone/m-GGUF:Q4_K_M", "someone/m-GGUF:Q8_0"]
    assert "midfill: the Hugging Face hub has no model 'someone/none'" in download("someone/none").stderr


async def test_an_editor_downloads_with_progress_and_cancel(hub: FakeHub, open_editor: OpenEditor, tmp_path: Path) -> None:
    async with open_editor(progress=True) as editor:
        ask = partial(editor.execute, "midfill.downloadModel")
        hub.pause_s = 1.5
        asked = asyncio.ensure_future(ask("someone/m-GGUF:Q8_0"))
        await until(lambda: any(parts(tmp_path)), 60)
        shown = zip(editor.progress_tokens, editor.progress, strict=True)
        (token,) = {token for token, value in shown if "downloading someone/m-GGUF:Q8_0" in str(value)}
        editor.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
        assert await asked == {"cancelled": True}
        (kept,) = parts(tmp_path)
        hub.pause_s = 0
        assert (await ask("someone/m-GGUF:Q8_0"))["path"].endswith("m-Q8_0.gguf")
        assert hub.ranges[-1] == ("m-Q8_0.gguf", f"bytes={kept}-")
        assert len((await ask("someone/m-GGUF"))["choices"]) == 2
        with pytest.raises(JsonRpcException, match="the Hugging Face hub has no model 'someone/none'"):
            await ask("someone/none")
