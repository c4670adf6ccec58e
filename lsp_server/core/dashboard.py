"""Asks a core for the address of its dashboard."""

from __future__ import annotations

import asyncio
import json
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from lsp_server.core.client import Endpoint
from lsp_server.core.target import target_of
from protocol.errors import CoreUnavailable, Unauthorized
from protocol.settings import Settings

_TIMEOUT_S = 10.0
_LONGEST_ANSWER = 4096


async def dashboard_url(settings: Settings, *, once: bool) -> str:
    """The address of the dashboard, of the core that these settings name; starts one on this machine if none runs.

    With `once` it opens the page once and soon: for a browser's command line, which other users of the machine may see.
    Raises Unauthorized if the core refuses the token, and CoreUnavailable if it does not answer.
    """
    endpoint = await target_of(settings, time.time()).find()
    await endpoint.check()
    try:
        return await asyncio.to_thread(_ask, endpoint, once)
    except (OSError, HTTPException, ValueError, KeyError) as error:
        raise CoreUnavailable(f"the core at {endpoint.url} has no dashboard: {error!r}") from error


def _ask(endpoint: Endpoint, once: bool) -> str:
    address = urlsplit(endpoint.url)
    connection_class = HTTPSConnection if address.scheme == "wss" else HTTPConnection
    connection = connection_class(address.hostname or "", address.port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/dashboard/link", headers={"Authorization": f"Bearer {endpoint.token}"})
        response = connection.getresponse()
        if response.status == HTTPStatus.UNAUTHORIZED:
            raise Unauthorized(f"the core at {endpoint.url} refused the token")
        if response.status == HTTPStatus.FORBIDDEN:
            raise Unauthorized(
                f"only the owner's token opens the dashboard of {endpoint.url}: it shows every user's prompts"
            )
        if response.status != HTTPStatus.OK:
            raise CoreUnavailable(f"the core at {endpoint.url} has no dashboard (HTTP {response.status})")
        link = json.loads(response.read(_LONGEST_ANSWER))
    finally:
        connection.close()
    scheme = "https" if address.scheme == "wss" else "http"
    return f"{scheme}://{address.netloc}/dashboard#{link['code' if once else 'key']}"
