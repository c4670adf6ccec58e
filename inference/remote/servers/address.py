"""Reads the setting `engine`: which kind of engine, and its URL or its program."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from protocol.errors import BadInput
from protocol.settings import LOCAL_ENGINE

LLAMA_SERVER = "llama-server"
OPENAI = "openai"

EngineKind = Literal["llama-server", "openai"]


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """An engine that runs at `url`, or llama-server's `program`, to be started."""

    kind: EngineKind
    url: str = ""
    program: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.url}" if self.url else self.program

    @property
    def is_loopback(self) -> bool:
        """Whether the engine runs on this machine, where no proxy is between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False


def read_engine_address(engine: str) -> EngineAddress | None:
    """The address in the setting; None for the local engine.

    `llama-server`, `llama-server=PROGRAM`, `llama-server=URL`, `openai=URL`; BadInput for anything else.
    """
    kind, _, place = engine.partition("=")
    if engine == LOCAL_ENGINE:
        return None
    if kind == LLAMA_SERVER and "://" not in place:
        return EngineAddress("llama-server", program=str(Path(place).expanduser()) if place else LLAMA_SERVER)
    if kind not in (LLAMA_SERVER, OPENAI):
        raise BadInput(
            f"engine = {engine!r}: expected local, llama-server, llama-server=PROGRAM, llama-server=URL or openai=URL"
        )
    return EngineAddress("openai" if kind == OPENAI else "llama-server", url=_checked_url(engine, place))


def _checked_url(engine: str, url: str) -> str:
    """The URL without a final slash and without `/v1`, which the requests add."""
    if "," in url:
        raise BadInput(
            f"engine = {engine!r}: expected one URL. For several servers, put a router before them, such as "
            "vllm-router or HAProxy, and name the router's URL (docs/teams.md#several-machines)"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or parts.query or parts.username:
        raise BadInput(f"engine = {engine!r}: expected a URL such as http://HOST:PORT after the =")
    return url.rstrip("/").removesuffix("/v1")
