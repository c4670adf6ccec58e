"""The published agent of Tabby's clients asks a core process while someone types: what it shows, and what it pays."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.attacked import Core, attacked_core

AGENT = Path(__file__).parent / "node_modules" / "tabby-agent" / "dist" / "cli.js"
MISSING = "tabby-agent is not installed: `make test-clients` installs it where there is npm"

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("node") is None or not AGENT.exists(), reason=MISSING),
]

log = logging.getLogger(__name__)

CONFIG = """\
[server]
endpoint = "http://{address}"
token = "{token}"

[completion.debounce]
mode = "fixed"
interval = 10

[anonymousUsageTracking]
disable = true
"""
ABOVE = "".join(f"def size_{n}(path):\n    return os.stat(path).st_size + {n}\n\n\n" for n in range(12))
BELOW = "\n\nif __name__ == '__main__':\n" + "".join(f"    print(names('{n}'))\n" for n in range(30))
TYPED = "def names(folder):\n    found = []\n    for name in os"
SNIPPETS = [
    {"filepath": f"/work/app/{name}.py", "offset": 0, "text": f"def {name}(path):\n    return path\n", "score": 1.0}
    for name in ("load", "store", "parse")
]


class Agent:
    """The agent as an editor's extension runs it: JSON lines over stdio."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._calls = 0

    def call(self, function: str, *arguments: Any) -> Any:
        """The answer to a call; None where the agent logs an error. Events in between are skipped."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._calls += 1
        self._process.stdin.write(json.dumps([self._calls, {"func": function, "args": arguments}]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            number, answer = json.loads(line)
            if number == self._calls:
                return answer
        raise AssertionError("the agent has ended")

    def completions(self, typed: str, **context: Any) -> list[str]:
        """The texts shown after what was typed between ABOVE and BELOW."""
        request = {"filepath": "/work/app/names.py", "workspace": "/work/app", "language": "python"}
        place = {"text": ABOVE + typed + BELOW, "position": len(ABOVE + typed)}
        answer = self.call("provideCompletions", {**request, **place, **context}, {"signal": True})
        return [choice["text"] for choice in answer["choices"]]


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    with attacked_core(tmp_path) as core:
        yield core


@contextmanager
def started_agent(core: Core, home: Path, token: str) -> Iterator[Agent]:
    """The agent with its configuration file in a home of its own."""
    file = home / ".tabby-client" / "agent" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(CONFIG.format(address=core.address, token=token))
    environment = {**os.environ, "HOME": str(home)}
    process = subprocess.Popen(["node", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield Agent(process)
    finally:
        process.kill()
        process.communicate()


def counted(core: Core) -> tuple[int, int]:
    """The core's prompt tokens, and the recomputed ones among them."""
    request = urllib.request.Request(f"http://{core.address}/metrics", headers=core.bearer)
    with urllib.request.urlopen(request) as answer:
        text = answer.read().decode()
    prompt, recomputed = (
        int(float(re.search(rf"^midfill_{name}_tokens_total (\S+)$", text, re.MULTILINE)[1]))  # type: ignore[index]
        for name in ("prompt", "recomputed")
    )
    return prompt, recomputed


def test_typing_in_tabbys_agent(core: Core, tmp_path: Path) -> None:
    with started_agent(core, tmp_path / "home", core.token) as agent:
        assert agent.call("initialize", {"clientProperties": {}}) is True
        assert agent.call("getStatus") == "ready"
        assert agent.call("getServerHealthState")["model"]
        texts, before, costs = 0, (0, 0), []
        for number in range(1, len(TYPED) + 1):
            snippets = [SNIPPETS[(number + place) % 3] for place in range(3)]  # whose order by score changes
            context = {"relevantSnippetsFromChangedFiles": snippets, "clipboard": "copied"}
            texts += bool(agent.completions(TYPED[:number], **context))
            after = counted(core)
            costs.append((after[0] - before[0], after[1] - before[1]))
            before = after
        costs = [cost for cost in costs if cost[0]]  # the agent answers others from its cache
        share = 1 - sum(cost[1] for cost in costs[1:]) / sum(cost[0] for cost in costs[1:])
        log.info("%d keys, %d requests, %d texts, %.1f %% cached", len(TYPED), len(costs), texts, 100 * share)
        assert len(costs) > 20
        assert texts > len(TYPED) // 2
        assert share >= 0.95, costs
        event = {"type": "view", "completion_id": "cmpl-1", "choice_index": 0}
        assert agent.call("postEvent", event) is True
    kept = json.loads((tmp_path / "home" / ".tabby-client" / "agent" / "data.json").read_text())
    assert list(kept["serverConfig"].values()) == [{"anonymousUsageTracking": {"disable": True}}]


def test_agent_without_the_token_is_told_so(core: Core, tmp_path: Path) -> None:
    with started_agent(core, tmp_path / "home", "wrong") as agent:
        agent.call("initialize", {"clientProperties": {}})
        assert agent.call("getStatus") == "unauthorized"
