"""Serves the built web pages: HTML, scripts and styles, which load nothing from other hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

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
_NOT_BUILT = (
    "The web pages are not built. In midfill's checkout run `make pages`, which needs npm; then load this page again.\n"
)


class _Files(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(HEADERS)
        return response


def page_routes(name: str, built: Path = BUILT) -> Sequence[BaseRoute]:
    """The page `/NAME`, and the files of all pages; needs no key, since they are in the repository."""

    async def page(_request: Request) -> Response:
        file = built / f"{name}.html"
        if not file.is_file():
            return PlainTextResponse(_NOT_BUILT, 503, HEADERS)
        return FileResponse(file, headers=HEADERS)

    return [Route(f"/{name}", page), Mount(STATIC_PATH, _Files(directory=built, check_dir=False))]
