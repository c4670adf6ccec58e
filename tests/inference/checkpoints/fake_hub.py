"""A hub on this machine: as much of the Hugging Face hub's API as downloads use, and the faults that they meet."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

_PIECE = 8 * 2**20
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Repositories by name, with the content of their files; `*.safetensors` and `*.gguf` are large files."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.refused: dict[str, tuple[int, str]] = {}  # by repository: the status and the hub's code of the error
        self.damaged: set[str] = set()  # files whose content is not what their hash says
        self.ranges: list[tuple[str, str]] = []  # the files that were sent, and the ranges that were asked for
        self.pause_s = 0.0  # between two pieces of a large file
        self.url = ""

    @contextmanager
    def listening(self) -> Iterator[FakeHub]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def entry(self, path: str, content: bytes) -> dict[str, Any]:
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        if not path.endswith((".safetensors", ".gguf")):
            return {"rfilename": path, "size": len(content), "blobId": oid}
        sha256 = hashlib.sha256(content).hexdigest()
        lfs = {"sha256": sha256, "oid": sha256, "size": len(content), "pointerSize": 100}
        return {"rfilename": path, "size": len(content), "blobId": oid, "lfs": lfs}


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def log_message(self, *_: object) -> None:
        """Keeps quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        owner, name, *rest = parts[2:] if is_api else parts
        repository = f"{owner}/{name}"
        if (repository in self.hub.refused and not is_api) or repository not in self.hub.repositories:
            status, code = self.hub.refused.get(repository, (401, "RepoNotFound"))
            self._send(b"", status, {"X-Error-Code": code})
            return
        files = self.hub.repositories[repository]
        if is_api:
            self._send_facts(repository, [self.hub.entry(path, content) for path, content in files.items()], rest)
        else:
            self._send_file("/".join(rest[2:]), files["/".join(rest[2:])])

    def _send_facts(self, repository: str, entries: list[dict[str, Any]], rest: list[str]) -> None:
        if rest[:1] == ["tree"]:
            tree = [{"type": "file", "path": each["rfilename"], "oid": each["blobId"], **each} for each in entries]
            self._send(json.dumps(tree).encode())
            return
        facts = {"id": repository, "sha": COMMIT, "siblings": entries, "cardData": {"license": "apache-2.0"}}
        self._send(json.dumps(facts).encode())

    def _send_file(self, path: str, content: bytes) -> None:
        entry = self.hub.entry(path, content)
        etag = entry["lfs"]["sha256"] if "lfs" in entry else entry["blobId"]
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        asked = self.headers.get("Range", "")
        if self.command == "GET":
            self.hub.ranges.append((path, asked))
        body = content[::-1] if path in self.hub.damaged else content
        first = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(body) - 1}/{len(body)}"
        self._send(body[first:], 206 if first else 200, headers)

    def _send(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            with suppress(ConnectionError):  # a download that was stopped
                for first in range(0, len(body), _PIECE):
                    self.wfile.write(body[first : first + _PIECE])
                    time.sleep(self.hub.pause_s)
