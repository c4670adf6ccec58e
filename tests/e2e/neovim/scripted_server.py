"""A language server that answers as a script says, late if need be, and writes down what it is told.

The script is a JSON file, which is read for each request:

- `texts`: the suggestions for a manual request, of which an automatic one gets the first;
- `replaced`: how many characters behind the cursor they replace;
- `edit`: the next edit, `{text, range, parts}`, or none; without `parts` it is one itself;
- `late`: whether the answer waits until the request `test/release` asks for the oldest one that waits;
- `command`: one to be run on acceptance;
- `reason`: why the last request got nothing;
- `commands`: those that the server offers, with `result`, which they return, or `problem`, with which they fail, or
  `hang`, where they are not answered.

The request `test/notify` has the server send its parameters, a notification. What arrives is appended to the log, a
line each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_AUTOMATIC = 2


def serve(script: Path, log: Path) -> None:
    """Answer until the client leaves."""
    late: list[dict[str, Any]] = []
    while (message := _read()) is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"method": message.get("method"), "params": message.get("params")}) + "\n")
        if message.get("method") == "exit":
            return
        if "id" in message and "method" in message:
            _answer(message, json.loads(script.read_text(encoding="utf-8")), late)


def _answer(message: dict[str, Any], script: dict[str, Any], late: list[dict[str, Any]]) -> None:
    result: Any = None
    if message["method"] == "initialize":
        sync = {"openClose": True, "change": 2}
        capabilities: dict[str, Any] = {"textDocumentSync": sync, "inlineCompletionProvider": {}}
        if "commands" in script:
            capabilities["executeCommandProvider"] = {"commands": script["commands"]}
        result = {"capabilities": capabilities}
    elif message["method"] == "textDocument/inlineCompletion":
        result = {"items": _items(message["params"], script)}
        if script.get("late"):
            late.append({"id": message["id"], "result": result})
            return
    elif message["method"] == "textDocument/copilotInlineEdit":
        command = {"title": "Accepted", "command": "midfill.nextEditAccepted", "arguments": [1]}
        edit = script.get("edit")
        result = {"edits": [{"command": command, "parts": [edit]} | edit] if edit else []}
    elif message["method"] == "midfill/lastReason":
        result = script.get("reason")
    elif message["method"] == "test/release":
        _write(late.pop(0))
    elif message["method"] == "test/notify":
        _write(message["params"])
    elif message["method"] == "workspace/executeCommand" and script.get("hang"):
        return
    elif message["method"] == "workspace/executeCommand" and "problem" in script:
        _write({"id": message["id"], "error": {"code": -32803, "message": script["problem"]}})
        return
    elif message["method"] == "workspace/executeCommand":
        result = script.get("results", {}).get(message["params"]["command"], script.get("result"))
    _write({"id": message["id"], "result": result})


def _items(params: dict[str, Any], script: dict[str, Any]) -> list[dict[str, Any]]:
    start = params["position"]
    end = {"line": start["line"], "character": start["character"] + script.get("replaced", 0)}
    texts = script["texts"][:1] if params["context"]["triggerKind"] == _AUTOMATIC else script["texts"]
    more = {"command": script["command"]} if "command" in script else {}
    return [{"insertText": text, "range": {"start": start, "end": end}} | more for text in texts]


def _read() -> dict[str, Any] | None:
    length = 0
    while line := sys.stdin.buffer.readline().strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not length:
        return None
    message: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
    return message


def _write(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0"} | message).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
