"""Web pages: their files, and the keys that open them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from inference.core.http.responses import error_response

STATIC_PATH = "/pages/static"
BUILT = Path(__file__).with_name("static")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NOT_BUILT = "The web pages are not built. In midfill's checkout run `make pages`, which needs npm; then load this page again.\n"


class _Files(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(HEADERS)
        return response


def page_routes(name: str, built: Path = BUILT) -> Sequence[BaseRoute]:
    """The page `/NAME`, and the files of all pages; needs no key, since they are in the repository."""

    async def page(_request: HttpRequest) -> Response:
        file = built / f"{name}.html"
        if not file.is_file():
            return PlainTextResponse(_NOT_BUILT, 503, HEADERS)
        return FileResponse(file, headers=HEADERS)

    return [Route(f"/{name}", page), Mount(STATIC_PATH, _Files(directory=built, check_dir=False))]


CODE_S = 120.0
"""Seconds within which a code must be used."""


class PageKeys:
    """One key, as long as this process runs, and codes that are each exchanged for it once.

    A link that a program opens in a browser carries a code, since other users of the machine may see its command line.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_urlsafe(32)
        self._now = now
        self._codes: dict[str, float] = {}  # with the time until which each is valid

    def new_code(self) -> str:
        self._codes = {code: until for code, until in self._codes.items() if until > self._now()}
        code = secrets.token_urlsafe(32)
        self._codes[code] = self._now() + CODE_S
        return code

    def admits(self, shown: str) -> bool:
        return secrets.compare_digest(shown.encode(), self.key.encode())

    def exchange(self, shown: str) -> str | None:
        """The key for the key itself or a valid code, which is then used up; None for anything else."""
        return self.key if self.admits(shown) or self._codes.pop(shown, 0.0) > self._now() else None


KEY_PATH = "/pages/key"


def key_route(keys: PageKeys) -> Route:
    """Exchanges what a link carries, sent as the bearer, for the key of the pages."""

    async def exchange(request: HttpRequest) -> Response:
        key = keys.exchange(bearer_of(request.headers.get("authorization", "")))
        if key is None:
            return error_response(401, "this link was used before, or is too old: open the page by a new one")
        return JSONResponse({"key": key}, headers={"Cache-Control": "no-store"})

    return Route(KEY_PATH, exchange)


def bearer_of(header: str) -> str:
    """The token of an Authorization header; empty if it has none."""
    scheme, _, token = header.partition(" ")
    return token if scheme == "Bearer" else ""
