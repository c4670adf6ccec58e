"""A core for editors under test that does what JSON lines on stdin say; its first line on stdout is its address.

- `{"status": {...}}`: its state from now on, as the fields of `CoreStatus`;
- `{"answer": "text", "logprob": -0.1}`: what it completes, and how probable that is;
- `{"hold": true}`: it answers only after `{"hold": false}`;
- `{"prefill": [512, 1280]}`: it says of the last request that so many of so many tokens are computed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from msgspec.structs import replace
from websockets.asyncio.server import ServerConnection

from protocol.messages import CoreStatus
from protocol.wire import Complete, Completed
from tests.lsp_server.fake_core import FakeCore, completion

TOKEN = "secret"


class ScriptedCore(FakeCore):
    """Holds its answers on request, and names their probability."""

    def __init__(self) -> None:
        super().__init__(TOKEN)
        self.text, self.logprob = "x = 1", 0.0
        self.open = asyncio.Event()
        self.open.set()

    async def _complete(self, connection: ServerConnection, message: Complete) -> None:
        if message.request.max_tokens:
            await self.open.wait()
        text = self.text if message.request.max_tokens else ""
        answer = replace(completion(text), mean_logprob=self.logprob)
        await self._send(connection, Completed(message.id, answer))

    async def obey(self, command: dict[str, Any]) -> None:
        if "status" in command:
            await self.set_status(CoreStatus(**({"model": "fake", "device": "cpu"} | command["status"])))
        if "answer" in command:
            self.text, self.logprob = command["answer"], command.get("logprob", 0.0)
        if "hold" in command:
            (self.open.clear if command["hold"] else self.open.set)()
        if "prefill" in command:
            await self.report_prefill(*command["prefill"])


async def main() -> None:
    core = ScriptedCore()
    async with core.listening():
        sys.stdout.write(core.url + "\n")
        sys.stdout.flush()
        while line := await asyncio.to_thread(sys.stdin.readline):
            await core.obey(json.loads(line))


if __name__ == "__main__":
    asyncio.run(main())
