"""What the tests of all HTTP APIs share: posting, and reading streams."""

from __future__ import annotations

import json
from typing import Any

from starlette.testclient import TestClient

BEFORE = "import os\n\n\ndef names(folder):\n    found = []\n    for name in os.listdir(folder):\n        found."
AFTER = "\n    return found\n"


def post(client: TestClient, path: str, body: Any, **headers: str) -> Any:
    response = client.post(path, json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def post_events(client: TestClient, path: str, body: Any) -> list[Any]:
    """The values of the server-sent events; "[DONE]" stays as it is."""
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    values = [event.removeprefix("data: ") for event in events]
    return [value if value == "[DONE]" else json.loads(value) for value in values]


def refusal(client: TestClient, path: str, body: Any, **headers: str) -> str:
    response = client.post(path, json=body, headers=headers)
    assert response.status_code == 422, response.text
    error = response.json()["error"]
    return str(error if isinstance(error, str) else error["message"])
