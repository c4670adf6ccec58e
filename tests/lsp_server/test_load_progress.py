"""The progress that clients show while the model loads."""

from __future__ import annotations

from protocol.messages import CoreStatus

from .editor import connected_editor, until
from .fake_core import READY, FakeCore


async def test_nothing_while_the_model_loads_but_it_is_set_to_work(core: FakeCore) -> None:
    core.status = CoreStatus("unloaded", "fake")
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, progress=True)
        await editor.until_state("unloaded")
        editor.open("a")
        assert await editor.suggest(0, 1) == []
        await until(lambda: core.requests)
        assert core.asked == []
        await core.set_status(CoreStatus("loading", "fake", detail="reading weights", progress=0.25))
        await until(lambda: editor.progress)
        assert (editor.progress[0]["kind"], editor.progress[0]["percentage"]) == ("begin", 25)
        await core.set_status(READY)
        await until(lambda: editor.progress[-1]["kind"] == "end")
        assert await editor.suggest(0, 1)
