"""Two cores of deploy/cores.yaml behind a real HAProxy with deploy/cores.cfg, with the model `tiny`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.llama_server import free_port
from inference.core.users import add_token
from lsp_server.core_client.client import CoreClient, Endpoint
from protocol.messages import CompletionRequest, Prompt
from protocol.rendezvous import read_or_make_token
from tests.deploy.running import Core, issue, running
from tests.deploy.starts import CORES, DEPLOY, HOST, of_compose
from tests.inference.serving import wait_until

pytestmark = pytest.mark.engines

USERS = [f"user{number}" for number in range(12)]


@dataclass(frozen=True)
class Team:
    """Users of a proxy before two cores."""

    proxy: Core
    cores: list[Core]
    own_tokens: list[str]  # of the cores
    tokens: dict[str, str]  # of the users

    def served(self) -> dict[str, dict[int, int]]:
        """How many completions each user got from each core that runs."""
        found: dict[str, dict[int, int]] = {user: {} for user in USERS}
        for number, (core, token) in enumerate(zip(self.cores, self.own_tokens, strict=True)):
            if core.process.poll() is None:
                text = core.ask("/metrics", token=token)[1]
                for user, count in re.findall(r'midfill_user_requests_total\{outcome="completed",user="(\w+)"\} (\d+)', text):
                    found[user][number] = int(count)
        return found

    def complete(self, user: str) -> int:
        """The status of a completion over HTTP."""
        return self.proxy.ask("/v1/completions", {"prompt": "def f(", "max_tokens": 1}, self.tokens[user])[0]


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    if (program := shutil.which("haproxy")) is None:
        pytest.skip("there is no program haproxy")
    home, tls, port = tmp_path / "home", tmp_path / "tls", free_port()
    home.mkdir()
    tls.mkdir()
    authority = issue(tls, "cert.pem", "cert.pem.key")
    tokens = {user: add_token(home / "users.json", user) for user in USERS}
    proxied = (DEPLOY / "cores.cfg").read_text(encoding="utf-8")
    proxied = proxied.replace("bind :8765", f"bind 127.0.0.1:{port}").replace("/tls/", f"{tls}/")
    with ExitStack() as opened:
        cores, own_tokens = [], []
        for name in ("core-0", "core-1"):
            own = free_port()
            here = {"/home/midfill": str(home), "8765": str(own), "0.0.0.0": "127.0.0.1"}
            start = of_compose(CORES, name, "tiny").at(here)
            cores.append(opened.enter_context(running([sys.executable, "-m", "midfill"], start, own)))
            own_tokens.append(read_or_make_token(Path(start.variables["MIDFILL_RUNTIME_DIR"])))
            proxied = proxied.replace(f"{name}:8765", f"127.0.0.1:{own}")
        (tmp_path / "haproxy.cfg").write_text(proxied)
        process = opened.enter_context(subprocess.Popen([program, "-f", tmp_path / "haproxy.cfg"]))
        opened.callback(process.terminate)
        proxy = Core(process, port, HOST, authority)
        wait_until(proxy.listens)
        wait_until(lambda: proxy.ask("/health")[0] == 200)
        yield Team(proxy, cores, own_tokens, tokens)


async def test_each_user_stays_on_one_core_and_moves_when_it_ends(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls" / "authority.pem"))
    for user in USERS:
        assert [team.complete(user) for _ in range(2)] == [200, 200]
        endpoint = Endpoint(f"wss://127.0.0.1:{team.proxy.port}/ws", team.tokens[user])
        client = await CoreClient.open(endpoint, lambda _: None)
        assert await client.complete(CompletionRequest("a.py", Prompt("def f(", "\n"), 1))
        await client.close()
    served = team.served()
    assert all(list(counts.values()) == [3] for counts in served.values())
    assert {number for counts in served.values() for number in counts} == {0, 1}

    team.cores[1].process.terminate()
    team.cores[1].process.wait()
    wait_until(lambda: all(team.complete(user) == 200 for user in USERS))
    assert all(0 in counts for counts in team.served().values())
