"""What was recorded of models of next edits, in the scenarios of the laboratory's tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Literal

from tests.inference.tiny import ROOT

SCENARIOS = ROOT / "tests" / "lab" / "evaluation" / "data" / "scenarios"


def recorded_bodies(model: str, kind: Literal["request", "response"] = "request", name: str = "*") -> Iterator[Any]:
    """The bodies of the model's requests, or of the answers, in all scenarios or in one."""
    for file in sorted(SCENARIOS.glob(f"{name}/{model}.ndjson")):
        rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        yield from (json.loads(base64.b64decode(row["body_b64"])) for row in rows if row["kind"] == kind)


def recorded_answers(model: str, name: str) -> list[str]:
    """The texts that the model answered in the scenario."""
    return [body["choices"][0]["text"] for body in recorded_bodies(model, "response", name)]


def buffer_of(name: str) -> str:
    """The text of the scenario's document."""
    text = (SCENARIOS / f"{name}.txtar").read_text(encoding="utf-8")
    return text.partition("-- buffer.txt --\n")[2].partition("\n-- ")[0]
